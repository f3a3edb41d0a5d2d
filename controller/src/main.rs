// SPDX-License-Identifier: Apache-2.0
//! The process: parses flags and starts the controller.

use api::client::Clients;
use api::process;
use clap::Parser;
use controller::config::Config;
use controller::daemon;
use std::process::ExitCode;

/// Runs once per cluster: accepts pools, counts addresses, and frees the blocks and addresses of gone nodes.
#[derive(Parser)]
#[command(name = "rdmanet-controller", version)]
struct Cli {
    #[command(flatten)]
    config: Config,
}

fn main() -> ExitCode {
    let config = Cli::parse().config;
    process::start_logging("controller", &config.log);
    process::run(run(config))
}

async fn run(config: Config) -> Result<(), String> {
    config.quarantines.require()?;
    let stop = process::stop_on_signal()?;
    let clients = Clients::from_environment().await?;
    daemon::run(config, clients, stop)
        .await
        .map_err(|e| e.to_string())
}
