// SPDX-License-Identifier: Apache-2.0
//! Faults that affect all machines at once: the API server hangs, or is killed and restarted.

use crate::World;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The number of failures of the API server, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerFaults {
    hung: u32,
    killed: u32,
}

impl std::fmt::Display for ServerFaults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "hung {} times and was killed {} times", self.hung, self.killed)
    }
}

/// Injects a fault every few seconds until the run is over. The server runs afterwards.
pub(crate) async fn inject(world: Arc<World>, mut random: fastrand::Rng) -> ServerFaults {
    let mut faults = ServerFaults::default();
    let mut reported = 0;
    while !world.is_over() {
        let tenths = world.operations.load(Ordering::Relaxed) * 10 / world.wanted;
        if tenths > reported {
            reported = tenths;
            println!("chaos: {reported} tenths, no duplicate");
        }
        for _ in 0..random.u64(30..120) {
            if world.is_over() {
                return faults;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if random.u32(0..3) > 0 {
            faults.hung += 1;
            world.server.freeze();
            tokio::time::sleep(Duration::from_millis(random.u64(100..4000))).await;
            world.server.resume();
        } else {
            faults.killed += 1;
            world.server.kill();
            tokio::time::sleep(Duration::from_millis(random.u64(100..4000))).await;
            let again = world.clone();
            tokio::task::spawn_blocking(move || again.server.start_again())
                .await
                .unwrap();
        }
    }
    faults
}
