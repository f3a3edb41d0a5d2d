// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::testing::{cluster, pod};

fn map() -> Map {
    let mut cluster = cluster();
    cluster.pods.push(pod("p", "a", "10.1.0.18"));
    draw_reserved(&mut cluster)
}

/// The map of `rail0` with a reservation.
fn draw_reserved(cluster: &mut Snapshot) -> Map {
    let mut object = cluster.pools[0].object.clone();
    let reserved = vec!["10.1.0.128/28".to_owned()];
    object.spec.reserved.clone_from(&reserved);
    if let Some(accepted) = object.status.as_mut().and_then(|status| status.accepted.as_mut()) {
        accepted.reserved = reserved;
    }
    cluster.pools[0] = Pool::of(object);
    draw(cluster, &cluster.pools[0]).unwrap()
}

#[test]
fn the_segments_of_a_range_cover_it_without_gaps() {
    let map = map();
    let range = &map.ranges[0];
    let mut next = range.whole().first;
    for segment in &range.segments {
        assert_eq!(segment.at.first, next);
        next = segment.at.last + 1;
    }
    assert_eq!(next - 1, range.whole().last);
    let sum: u128 = range.segments.iter().map(|segment| segment.at.count()).sum();
    assert_eq!(sum, 256);
}

#[test]
fn each_segment_of_the_map_matches_the_pool_and_its_blocks() {
    let map = map();
    let range = &map.ranges[0];
    let first = range.whole().first;
    let parts: Vec<(u128, &Part)> = range
        .segments
        .iter()
        .map(|one| (one.at.first - first, &one.part))
        .collect();
    let block = |node: &str| Part::Block {
        node: node.to_owned(),
        state: "Active".to_owned(),
    };
    let (a, b) = (block("a"), block("b"));
    assert_eq!(
        parts,
        [
            // The network address and the gateway. Without an entry, the gateway is the first address.
            (0, &Part::Never),
            (2, &Part::Free),
            (16, &a),
            (32, &b),
            (48, &Part::Free),
            (128, &Part::Reserved),
            (144, &Part::Free),
            (200, &Part::Excluded),
            (210, &Part::Free),
            (255, &Part::Never),
        ]
    );
    assert_eq!(map.nodes["a"], (16, 1));
}

#[test]
fn a_block_of_another_pool_of_the_space_is_not_drawn_as_free() {
    let mut cluster = crate::testing::with(&[crate::testing::block("rail1", "10.1.0.64/28", "b")], &[]);
    let ranges = serde_json::json!([{ "subnet": "10.1.0.0/24" }]);
    let object = serde_json::from_value(crate::testing::pool("rail1", &ranges)).unwrap();
    cluster.pools.push(Pool::of(object));
    let map = draw(&cluster, &cluster.pools[0]).unwrap();
    let range = &map.ranges[0];
    let at = |number: u128| {
        let mut parts = range.segments.iter();
        let number = range.whole().first + number;
        parts
            .find(|one| one.at.contains(number))
            .map(|one| &one.part)
            .unwrap()
    };
    let other = Part::OtherPool {
        pool: "rail1".to_owned(),
    };
    assert_eq!(
        [at(63), at(64), at(79), at(80)],
        [&Part::Free, &other, &other, &Part::Free]
    );
    assert_eq!(map.nodes["b"].0, 16, "the other pool's block is not this pool's");
    let text = text::render(&map);
    assert!(text.contains("10.1.0.64       ################...."), "{text}");
    let drawn = svg::render(&map);
    assert!(drawn.contains("in a block of pool rail1"));
    assert_eq!(
        drawn.matches(r#"class="other""#).count(),
        2,
        "and the legend: {drawn}"
    );
}

#[test]
fn the_text_map_shows_a_letter_for_each_node_and_capitals_for_used_addresses() {
    let text = text::render(&map());
    let row = text.lines().find(|line| line.contains("10.1.0.0 ")).unwrap();
    assert_eq!(
        row,
        "  10.1.0.0        --..............aaAaaaaaaaaaaaaabbbbbbbbbbbbbbbb................"
    );
    assert!(text.contains("10.1.0.128      rrrrrrrrrrrrrrrr....."), "{text}");
    assert!(text.contains("10.1.0.192      ........xxxxxxxxxx....."), "{text}");
}

#[test]
fn the_text_map_shows_used_addresses_in_no_block_and_of_nodes_without_a_letter() {
    let mut cluster = crate::testing::with(&[], &[crate::testing::address("rail0", "10.1.0.100", "a", "p")]);
    let text = text::render(&draw_reserved(&mut cluster));
    let row = text.lines().find(|line| line.contains("10.1.0.64 ")).unwrap();
    assert_eq!(row.matches('*').count(), 1, "{row}");
    // The 25th node and the 26th have no letter.
    let blocks: Vec<Value> = (0..26)
        .map(|i| crate::testing::block("big", &format!("10.3.{i}.0/28"), &format!("n{i:02}")))
        .collect();
    let pool = crate::testing::pool("big", &json!([{ "subnet": "10.3.0.0/16", "gateway": "none" }]));
    let blocks = blocks
        .into_iter()
        .map(|block| serde_json::from_value(block).unwrap());
    let mut cluster = Snapshot::of(
        vec![serde_json::from_value(pool).unwrap()],
        blocks.collect(),
        vec![],
    );
    cluster.pods.push(pod("p", "n25", "10.3.25.2"));
    let text = text::render(&draw(&cluster, &cluster.pools[0]).unwrap());
    let (drawn, _) = text.split_once("NODE").unwrap();
    assert_eq!(
        (drawn.matches('+').count(), drawn.matches('*').count()),
        (1, 1),
        "{text}"
    );
}

/// Nodes obey the accepted spec until an edit is accepted.
#[test]
fn the_map_draws_the_spec_that_is_in_force() {
    let mut cluster = cluster();
    let mut edited = cluster.pools[0].object.clone();
    edited.spec.ranges[0].subnet = "10.2.0.0/24".to_owned();
    cluster.pools[0] = Pool::of(edited);
    let map = draw(&cluster, &cluster.pools[0]).unwrap();
    assert_eq!(map.ranges[0].subnet.to_string(), "10.1.0.0/24");
}

#[test]
fn the_map_of_a_large_range_stays_small_and_shows_its_blocks() {
    for subnet in ["10.0.0.0/8", "fd00::/64", "10.1.0.0/31", "::/0"] {
        let ranges = serde_json::json!([{ "subnet": subnet, "gateway": "none" }]);
        let object = serde_json::from_value(crate::testing::pool("big", &ranges)).unwrap();
        let mut cluster = Snapshot::of(vec![object], vec![], vec![]);
        if subnet == "10.0.0.0/8" {
            let block = crate::testing::block("big", "10.3.0.16/28", "n");
            cluster = Snapshot::of(
                vec![cluster.pools[0].object.clone()],
                vec![serde_json::from_value(block).unwrap()],
                vec![],
            );
        }
        let map = draw(&cluster, &cluster.pools[0]).unwrap();
        let rows = text::render(&map)
            .lines()
            .filter(|line| line.starts_with("  "))
            .count();
        assert!(rows <= 17, "{subnet}: {rows}");
        let svg = svg::render(&map);
        assert!(svg.len() < 20_000, "{subnet}: {} bytes", svg.len());
        if subnet == "10.0.0.0/8" {
            let text = text::render(&map);
            let row = text.lines().find(|line| line.contains("10.0.0.0 ")).unwrap();
            assert_eq!(row.matches('a').count(), 1, "{text}");
            assert!(svg.contains("n (Active)"));
        }
    }
}

#[test]
fn the_svg_map_is_self_contained_and_escapes_names() {
    let mut map = map();
    map.pool = "<script>&\"".to_owned();
    let svg = svg::render(&map);
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert!(!svg.contains("<script>") && svg.contains("&lt;script>&amp;&quot;"));
    assert_eq!(svg.matches("http").count(), 1, "the namespace only");
}

/// The example in docs/cli.md: the numbers of blocks of 16, with their owners and numbers of addresses in use.
const EXAMPLE: [(u8, &str, u8); 8] = [
    (1, "gpu-01", 16),
    (2, "gpu-02", 9),
    (4, "gpu-03", 5),
    (5, "gpu-04", 12),
    (9, "gpu-05", 3),
    (10, "gpu-06", 0),
    (11, "gpu-01", 4),
    (14, "gpu-02", 0),
];

/// The pods report the same addresses as the agents.
fn example() -> Map {
    let mut pods = Vec::new();
    let blocks = EXAMPLE.map(|(number, node, used)| {
        let first = number * 16;
        pods.extend((0..used).map(|i| pod(&format!("p{first}-{i}"), node, &format!("10.1.0.{}", first + i))));
        let mut block = crate::testing::block("rail0", &format!("10.1.0.{first}/28"), node);
        block["status"] = json!({ "used": used, "free": 16 - used });
        serde_json::from_value(block).unwrap()
    });
    let ranges = json!([{ "subnet": "10.1.0.0/24", "exclude": ["10.1.0.200-10.1.0.222"] }]);
    let object = crate::testing::pool_with("rail0", &ranges, &json!({ "reserved": ["10.1.0.128/29"] }));
    let pool = serde_json::from_value(object).unwrap();
    let mut cluster = Snapshot::of(vec![pool], blocks.into(), vec![]);
    cluster.pods = pods.into_iter().collect();
    draw(&cluster, &cluster.pools[0]).unwrap()
}

#[test]
fn the_example_map_draws_the_used_addresses_of_each_node() {
    let (map, mut used_of) = (example(), BTreeMap::<&str, i64>::new());
    for (_, node, used) in EXAMPLE {
        *used_of.entry(node).or_default() += i64::from(used);
    }
    assert!(used_of.iter().all(|(node, used)| map.nodes[*node].1 == *used));
    let drawn = svg::render(&map).matches(r#"class="held""#).count();
    assert_eq!(
        drawn,
        usize::try_from(used_of.values().sum::<i64>()).unwrap() + 1,
        "and the legend"
    );
}

#[test]
fn the_map_in_the_docs_matches_the_output_of_the_command() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/map.svg");
    let drawn = svg::render(&example());
    if std::env::var_os("RDMANET_WRITE").is_some() {
        std::fs::write(&file, &drawn).unwrap();
    }
    let there = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        there == drawn,
        "docs/map.svg is another; run: RDMANET_WRITE=1 cargo test -p cli --lib map"
    );
}
