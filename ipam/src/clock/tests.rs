// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn the_boot_id_comes_from_the_kernel() {
    assert!(is_boot_id(&KernelClock.boot_id().unwrap()));
    for other in [
        "",
        "important-backup",
        "00b00710",
        "0g000710-0000-4000-8000-000000000001",
        "00b0071000004000800000000000000012345",
    ] {
        assert!(!is_boot_id(other), "{other:?}");
    }
}

/// `adjtimex` and `timedatectl` read the same bit.
#[test]
fn the_kernel_reports_whether_its_clock_is_synchronized() {
    let status = kernel_time_status().unwrap();
    assert_eq!(KernelClock.is_synchronized().unwrap(), status & 0x40 == 0);
}
