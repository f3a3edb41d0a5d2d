// SPDX-License-Identifier: Apache-2.0
//! The problems of pools.

use super::*;

#[test]
fn a_pool_is_reported_until_it_has_no_problem() {
    let unreconciled = Unreconciled::default();
    let pool = PoolName::try_from("rail0".to_owned()).unwrap();
    unreconciled.set(&pool, Some("an address has two pods".to_owned()));
    assert_eq!(unreconciled.problems(), ["pool rail0: an address has two pods"]);
    unreconciled.set(&pool, None);
    assert!(unreconciled.problems().is_empty());
}
