// SPDX-License-Identifier: Apache-2.0
use super::ModelKernel;
use crate::kernel::PolicyRouting;
use common::netlink::{Added, Error, Rule};

impl PolicyRouting for ModelKernel {
    fn rules(&mut self) -> Result<Vec<Rule>, Error> {
        self.ask("list rules in Pod".to_owned(), |model| {
            Ok(model.state.rules.clone())
        })
    }

    fn add_rule(&mut self, rule: &Rule) -> Result<Added, Error> {
        self.ask(format!("rule from {}", rule.from), |model| {
            if model.state.rules.contains(rule) {
                return Ok(Added::Present);
            }
            model.state.rules.push(rule.clone());
            Ok(Added::New)
        })
    }

    fn delete_rule(&mut self, rule: &Rule) -> Result<bool, Error> {
        self.ask(format!("remove rule from {}", rule.from), |model| {
            let before = model.state.rules.len();
            model.state.rules.retain(|known| known != rule);
            Ok(model.state.rules.len() < before)
        })
    }
}
