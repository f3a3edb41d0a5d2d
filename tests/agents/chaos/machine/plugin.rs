// SPDX-License-Identifier: Apache-2.0
//! Calls `rdma-ipam` as a runtime does, one process for each call.

use super::{Living, Machine};
use agents::program;
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// The end of a call.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It returned a result, or nothing for DEL.
    Done(Value),
    /// It returned an error: its code and its full text.
    Refused(u64, String),
    /// The test killed it.
    Killed,
}

impl Machine {
    /// Calls a verb. Kills the process after `killed`.
    pub(crate) async fn call(&self, verb: &str, living: &Living, killed: Option<Duration>) -> Answer {
        let conf = json!({
            "cniVersion": "1.1.0", "name": "chaos", "type": "cni-ipoib",
            "ipam": { "type": "rdma-ipam", "pool": crate::POOL, "dataDir": self.data() },
        });
        let pod = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={};K8S_POD_UID={}",
            living.pod, living.uid
        );
        let mut child = Command::new(program("rdma-ipam"))
            .env_clear()
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", &living.container)
            .env("CNI_IFNAME", "net1")
            .env("CNI_NETNS", self.netns(&living.container))
            .env("CNI_PATH", "/opt/cni/bin")
            .env("CNI_ARGS", pod)
            .env("RDMANET_AGENT_SOCKET", self.dir.join("s"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        // A killed process reads no input.
        let _ = child
            .stdin
            .take()
            .unwrap()
            .write_all(conf.to_string().as_bytes())
            .await;
        let ending = child.wait_with_output();
        let output = match killed {
            None => ending.await.unwrap(),
            Some(after) => match tokio::time::timeout(after, ending).await {
                Ok(output) => output.unwrap(),
                Err(_) => return Answer::Killed,
            },
        };
        if output.status.success() {
            return Answer::Done(serde_json::from_slice(&output.stdout).unwrap_or(Value::Null));
        }
        let error: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{verb} ended with {} and no error document: {e}", output.status));
        Answer::Refused(error["code"].as_u64().unwrap(), error.to_string())
    }
}
