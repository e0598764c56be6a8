//! Memory of live runs.

use std::time::Duration;

use rye_client::Client;
use rye_client::events::Follow;
use rye_tests::measure::resident;

use crate::{Figure, figure};

/// Time for the daemon to write files and to clean up before its memory is measured. It is never idle while runs wait,
/// because it polls for files that cancel them.
const SETTLING: Duration = Duration::from_secs(10);

impl Figure {
    /// Measures the resident memory of each of `count` runs that wait for their next try.
    pub(crate) async fn waiting_runs(&self, client: &Client, name: &str, count: u32) {
        let waits = || self.request("bench/waits", None, "{}");
        let first = self.start(client, waits()).await;
        until_it_waits(client, &first).await;
        tokio::time::sleep(SETTLING).await;
        let before = resident(&self.world);
        let mut runs = Vec::new();
        for _ in 0..count {
            runs.push(self.start(client, waits()).await);
        }
        for run in &runs {
            until_it_waits(client, run).await;
        }
        tokio::time::sleep(SETTLING).await;
        let more = resident(&self.world) - before;
        figure(name, more * 1024.0 / f64::from(count), "KB");
    }
}

async fn until_it_waits(client: &Client, run: &str) {
    let mut events = client.events(run, "", Follow::UntilEnd);
    while let Some(event) = events.next().await.expect("events come") {
        if event.event_type == "retry_scheduled" {
            return;
        }
    }
}
