// SPDX-License-Identifier: Apache-2.0
//! Many nodes claim a block of a nearly full pool at the same time.

use crate::fleet::{Fleet, TIMEOUT};
use api::block_layout::BlockCidr;
use api::{BlockState, IpBlock, IpBlockSpec};
use apiserver::identity::join;
use bench_kube::gauge::{Gauges, Phase};
use futures::StreamExt;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use std::time::{Duration, Instant};

/// The number of blocks of such a pool.
const BLOCKS: usize = 8192;

/// The utilization before, in percent, and the number of nodes that claim a block. It is below the number of free
/// blocks.
const CROWDS: [(usize, usize); 3] = [(50, 200), (90, 200), (99, 40)];

/// The result.
pub(crate) struct Crowd {
    /// The percentage of blocks that were taken before.
    pub(crate) full: usize,
    /// The number of nodes that claimed a block.
    pub(crate) nodes: usize,
    /// CREATEs of blocks whose name was taken.
    pub(crate) conflicts: usize,
    /// Lists of the names of all blocks.
    pub(crate) lists: usize,
    pub(crate) phase: Phase,
}

/// Labels the nodes of each crowd before their agents start, because agents read their Node once a minute.
pub(crate) async fn label(fleet: &Fleet<'_>) {
    let mut first = 0;
    for (full, nodes) in CROWDS {
        let nodes = nodes.min(fleet.size / CROWDS.len());
        fleet.label(first..first + nodes, &format!("full-{full}")).await;
        first += nodes;
    }
}

/// Runs the crowds one after another. Each crowd has its own nodes.
pub(crate) async fn claims(fleet: &mut Fleet<'_>, gauges: &Gauges<'_>) -> Vec<Crowd> {
    let mut crowds = Vec::new();
    let mut first = 0;
    for (i, (full, nodes)) in CROWDS.into_iter().enumerate() {
        let nodes = nodes.min(fleet.size / CROWDS.len());
        crowds.push(
            claim(
                fleet,
                gauges,
                u8::try_from(i).unwrap(),
                full,
                first..first + nodes,
            )
            .await,
        );
        eprintln!("bench-scale: {}", crowds[i].phase.line());
        first += nodes;
    }
    crowds
}

async fn claim(
    fleet: &Fleet<'_>,
    gauges: &Gauges<'_>,
    number: u8,
    full: usize,
    nodes: std::ops::Range<usize>,
) -> Crowd {
    let pool = format!("full-{full}");
    let name = |i: usize| -> BlockCidr {
        let ip = std::net::Ipv4Addr::from(
            u32::from_be_bytes([172, 16 + 2 * number, 0, 0]) + u32::try_from(i * 16).unwrap(),
        );
        BlockCidr::containing(ip.into(), 4).unwrap()
    };
    fill(fleet, &pool, (0..BLOCKS).map(name).collect(), BLOCKS * full / 100).await;
    let start = gauges.start().await;
    let spec = json!({
        "ranges": [{ "subnet": format!("172.{}.0.0/15", 16 + 2 * number), "gateway": "none" }],
        "blockSize": { "v4": 16 },
        "cooldownSeconds": 0,
        "nodeSelector": { "matchLabels": { "crowd": pool } },
    });
    fleet.pool(&pool, spec).await;
    let begun = Instant::now();
    let has = |i: usize| {
        fleet.file(i, &pool)["blocks"]
            .as_array()
            .is_some_and(|blocks| !blocks.is_empty())
    };
    while !nodes.clone().all(has) {
        assert!(begun.elapsed() < TIMEOUT, "not every node has a block of {pool}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let phase = gauges
        .stop(format!("{} nodes claim at {full} %", nodes.len()), start)
        .await;
    Crowd {
        full,
        nodes: nodes.len(),
        conflicts: phase.conflicts,
        lists: phase
            .requests
            .get("list all ipblocks")
            .copied()
            .unwrap_or_default(),
        phase,
    }
}

/// Gives `count` random blocks to a node that does nothing.
async fn fill(fleet: &Fleet<'_>, pool: &str, mut cells: Vec<BlockCidr>, count: usize) {
    let owner = join(&fleet.admin, "elsewhere").await.unwrap();
    fastrand::shuffle(&mut cells);
    let api: Api<IpBlock> = Api::all(fleet.admin.clone());
    let (api, owner) = (&api, &owner);
    futures::stream::iter(&cells[..count])
        .for_each_concurrent(32, |cidr| async move {
            let spec = IpBlockSpec {
                pool: pool.to_owned(),
                cidr: cidr.network().to_string(),
                owner: owner.clone(),
                epoch: 1,
                state: BlockState::Active,
                quarantine_seconds: None,
                orphaned: None,
            };
            let block = IpBlock::new(&cidr.name("default"), spec);
            let made = api.create(&PostParams::default(), &block).await;
            let taken = |e: &kube::Error| matches!(e, kube::Error::Api(status) if status.code == 409);
            match made {
                // A starved server has not responded in time. It may have created the block; the second attempt ensures
                // it.
                Err(kube::Error::Service(_)) => match api.create(&PostParams::default(), &block).await {
                    Err(e) if !taken(&e) => panic!("{e}"),
                    _ => {}
                },
                made => drop(made.unwrap()),
            }
        })
        .await;
}
