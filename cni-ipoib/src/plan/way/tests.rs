// SPDX-License-Identifier: Apache-2.0
use super::*;

fn way(hca: Option<&str>, link: Option<&str>) -> Way {
    Way::of(&Drivers {
        hca: hca.map(str::to_owned),
        link: link.map(str::to_owned),
    })
}

#[test]
fn only_children_of_safe_drivers_are_created_in_the_pod() {
    for hca in PLAIN {
        assert_eq!(way(Some(hca), Some("ib_ipoib")), Way::Direct, "{hca}");
    }
    for (hca, link) in [
        (Some("mlx5_core"), Some("mlx5_core[ib_ipoib]")),
        // MLNX_OFED with ipoib_enhanced=0: safe, but not recognizable.
        (Some("mlx5_core"), Some("ib_ipoib")),
        // Its own data path, under the name of ib_ipoib's.
        (Some("hfi1"), Some("ib_ipoib")),
        (Some("softib"), Some("softib[ib_ipoib]")),
        (Some("mlx5_core.sf"), Some("mlx5_core[ib_ipoib]")),
        (Some("driver_of_next_year"), Some("ib_ipoib")),
        (Some("mlx4_core"), None),
        (None, Some("ib_ipoib")),
        (None, None),
    ] {
        assert_eq!(way(hca, link), Way::Moved, "{hca:?} {link:?}");
    }
}
