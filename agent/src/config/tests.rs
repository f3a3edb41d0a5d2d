// SPDX-License-Identifier: Apache-2.0
//! The periods of an agent.

use super::*;

#[test]
fn the_agent_reads_its_node_before_the_pod_garbage_collector_acts() {
    for flags in [&[][..], &["--quarantine", "24h"]] {
        let line = ["agent", "--node", "a"].iter().chain(flags);
        let config = Config::try_parse_from(line).unwrap();
        assert!(config.confirm_every() < Duration::from_secs(40));
        assert!(config.answer_age() < Duration::from_secs(40));
    }
}
