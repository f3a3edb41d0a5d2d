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

#[tokio::test]
async fn a_removed_lock_file_lets_no_second_agent_run() {
    let data = tempfile::tempdir().unwrap();
    let first = NodeLock::take(data.path()).await.unwrap();
    let directory = data.path().to_owned();
    let mut waiting = tokio::spawn(async move { NodeLock::take(&directory).await.unwrap() });
    let opened = tokio::time::timeout(Duration::from_millis(500), &mut waiting).await;
    assert!(opened.is_err(), "the first agent holds the lock");
    fs::remove_file(data.path().join(".agent.lock")).unwrap();
    let second = NodeLock::take(data.path()).await.unwrap();
    drop(first);
    let locked = tokio::time::timeout(Duration::from_millis(500), &mut waiting).await;
    assert!(locked.is_err(), "the second agent holds the lock of the new file");
    drop(second);
    waiting.await.unwrap();
}
