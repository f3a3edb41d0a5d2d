// SPDX-License-Identifier: Apache-2.0
use super::NodeLock;
use crate::error::Error;
use crate::model::alone;
use std::time::Duration;

#[test]
fn one_call_holds_the_lock_and_the_next_is_told_to_retry() {
    let _alone = alone();
    let state = tempfile::tempdir().unwrap();
    let first = NodeLock::take(state.path()).unwrap();
    let second = NodeLock::take_within(state.path(), Duration::from_millis(20));
    assert!(
        matches!(&second, Err(Error::Locked { path, .. }) if path.ends_with("attachments")),
        "{second:?}"
    );
    drop(first);
    NodeLock::take_within(state.path(), Duration::ZERO).unwrap();
    assert_eq!(crate::journal::written(state.path()).unwrap(), []);
}
