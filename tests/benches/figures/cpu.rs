//! CPU time of the daemon.

use rye_client::Client;
use rye_client::events::Follow;
use rye_proto::v1;
use rye_tests::measure::{Series, computed, wait_until_idle};

use crate::{Figure, figure};

/// Steps of the run whose CPU time is measured: native steps, and shell commands.
pub(crate) const NATIVE_STEPS: u32 = 10_000;
pub(crate) const SHELL_STEPS: u32 = 500;
/// Number of floods per figure.
const FLOODS: u32 = 7;

impl Figure {
    /// Measures the CPU time of the daemon and its parent for a step of one run of `item`. It includes all work until
    /// the daemon is idle, such as files of the project and the upkeep of its log.
    pub(crate) async fn cpu(&self, client: &Client, name: &str, item: &str, steps: u32) {
        wait_until_idle(&self.world).await;
        let before = computed(&self.world);
        self.steps(client, item, 1, steps, "{}").await;
        wait_until_idle(&self.world).await;
        let used = computed(&self.world) - before;
        figure(name, used / f64::from(steps), "ms");
    }

    /// Measures the CPU time of the daemon while a tool floods its output. With `follow` a client reads the lines.
    pub(crate) async fn floods(&self, client: &Client, name: &str, follow: Follow) {
        let mut floods = Series::new("CPU of a flood", "ms");
        for _ in 0..FLOODS {
            floods.add(self.flood(client, follow).await);
        }
        floods.print();
        figure(name, floods.median(), "ms");
    }

    /// Returns the CPU time of one flood in milliseconds.
    async fn flood(&self, client: &Client, follow: Follow) -> f64 {
        let before = computed(&self.world);
        let run = self
            .start(client, self.request("bench/flood", None, "{}"))
            .await;
        if follow == Follow::UntilEnd {
            let request = v1::LogsRequest {
                run_id: run.clone(),
                follow: true,
                ..v1::LogsRequest::default()
            };
            let mut lines = client.logs(request).await.expect("lines are served");
            let mut bytes = 0;
            while let Some(line) = lines.next().await.expect("lines come") {
                bytes += line.text.len();
            }
            assert!(bytes > 0, "the client reads lines of the flood");
        }
        let ended = client.wait(&[run], None).await.expect("the run ends");
        for run in ended.runs {
            assert!(run.error.is_none(), "{:?}", run.error);
        }
        computed(&self.world) - before
    }
}
