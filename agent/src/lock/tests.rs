// SPDX-License-Identifier: Apache-2.0

use super::*;
use std::fs;

#[tokio::test]
async fn no_other_user_can_open_the_lock_of_the_node() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join(".agent.lock");
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    drop(NodeLock::take(data.path()).await.unwrap());
    assert_eq!(mode(), 0o600);
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    drop(NodeLock::take(data.path()).await.unwrap());
    assert_eq!(mode(), 0o600);
}
