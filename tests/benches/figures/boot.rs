//! Boot of a daemon whose state directory contains many ended runs.

use std::time::Instant;

use futures_util::future::join_all;
use rye_client::Client;
use rye_proto::v1;
use rye_tests::measure::{Series, milliseconds, start_until_ready, wait_until_idle};
use rye_tests::until;

use crate::{Figure, figure};

/// Ended runs in the state directory. `RYE_FIGURES_ENDED_RUNS` overrides it.
const ENDED_RUNS: usize = 50_000;
/// Number of concurrent tasks that start runs.
const STARTERS: usize = 16;
/// Runs that one task starts before it waits for them.
const BATCH: usize = 50;
/// Boots per figure. The figure is their median.
const BOOTS: usize = 5;

impl Figure {
    /// Measures the time from the start of `ryed` to its first answer, and to the first list of runs.
    ///
    /// It also prints the rate at which the runs were made, and the time until the daemon was idle again.
    pub(crate) async fn boots(&self, client: &Client) {
        let count = std::env::var_os("RYE_FIGURES_ENDED_RUNS")
            .map_or(Some(ENDED_RUNS), |count| count.to_str()?.parse().ok())
            .expect("RYE_FIGURES_ENDED_RUNS is a number");
        self.end_runs(client, count).await;
        let mut ready = Series::new("boot to ready", "ms");
        let mut listed = Series::new("boot to the first list of runs", "ms");
        for _ in 0..BOOTS {
            self.stop();
            let began = Instant::now();
            let (_daemon, client) = start_until_ready(&self.world).await;
            ready.add(milliseconds(began.elapsed()));
            let runs = client.list(v1::ListRequest::default()).await;
            listed.add(milliseconds(began.elapsed()));
            assert!(!runs.expect("runs can be listed").runs.is_empty());
        }
        ready.print();
        listed.print();
        figure("boot_ready", ready.median(), "ms");
        figure("boot_ps", listed.median(), "ms");
        self.stop();
    }

    /// Starts `count` short runs. Waits until they have ended and the daemon is idle.
    async fn end_runs(&self, client: &Client, count: usize) {
        let began = Instant::now();
        let starter = |count: usize| async move {
            for first in (0..count).step_by(BATCH) {
                let mut runs = Vec::new();
                for _ in first..count.min(first + BATCH) {
                    let request = self.request("bench/short", None, "{}");
                    runs.push(self.start(client, request).await);
                }
                let ended = client.wait(&runs, None).await.expect("the runs end");
                for run in ended.runs {
                    assert!(run.error.is_none(), "{:?}", run.error);
                }
            }
        };
        let shares = (0..STARTERS).map(|at| count / STARTERS + usize::from(at < count % STARTERS));
        join_all(shares.map(starter)).await;
        let made = began.elapsed();
        println!("{count} runs started and ended in {made:.1?}");
        let began = Instant::now();
        wait_until_idle(&self.world).await;
        println!("at rest after {:.1?} more", began.elapsed());
    }

    /// Stops the daemon and waits until both processes are gone.
    fn stop(&self) {
        let _stopped = self.world.ryectl("daemon stop --no-autostart").ok();
        until("the daemon to be gone", || {
            self.world.processes().is_empty().then_some(())
        });
    }
}
