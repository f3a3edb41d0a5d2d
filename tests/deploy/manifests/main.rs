// SPDX-License-Identifier: Apache-2.0
//! The manifests of `conf/`, rendered by kustomize and by Helm, on a real API server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]
#![allow(clippy::print_stdout, reason = "what was done is part of the run's record")]

mod accepted;
mod bill;
mod least;
mod monitoring;
mod release;
mod same;
mod upgrade;
mod values;
