// SPDX-License-Identifier: Apache-2.0
mod claim;
mod model;
mod world;
