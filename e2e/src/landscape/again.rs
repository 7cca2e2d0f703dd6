//! Kills and restarts operators.

use std::path::Path;

use anyhow::{Context, Result};
use testbed::Process;

use super::{Landscape, operator};

impl Landscape {
    /// Kills an operator (SIGKILL); [`Self::kill_and_restart`] starts it again.
    ///
    /// # Errors
    /// There is no operator of that name.
    pub fn kill(&self, name: &str) -> Result<()> {
        self.operator(name).map(Process::kill)
    }

    /// Kills an operator (SIGKILL), starts it again, and waits until it is ready.
    ///
    /// # Errors
    /// There is no operator of that name, or it does not become ready.
    pub async fn kill_and_restart(&mut self, name: &str) -> Result<()> {
        self.operator(name)?.kill();
        self.start_anew(name).await?.until_ready().await
    }

    /// Starts an operator that was killed, without waiting until it is ready.
    ///
    /// # Errors
    /// There is no operator of that name, or it does not start.
    pub async fn start_again(&mut self, name: &str) -> Result<()> {
        self.start_anew(name).await.map(drop)
    }

    /// Starts another program in place of an operator that was killed, with the same flags, and waits until it is
    /// ready.
    ///
    /// # Errors
    /// There is no operator of that name, or it does not become ready.
    pub async fn start_other(&mut self, name: &str, program: &Path) -> Result<()> {
        self.start_program(name, program).await?.until_ready().await
    }

    async fn start_anew(&mut self, name: &str) -> Result<&operator::RunningOperator> {
        let program = operator::bin(name);
        self.start_program(name, &program).await
    }

    async fn start_program(&mut self, name: &str, program: &Path) -> Result<&operator::RunningOperator> {
        let position = self.operators().position(|operator| operator.name() == name);
        let position = position.with_context(|| format!("no operator {name}"))?;
        let Self { test_env, hub, operator_options, .. } = self;
        let started = operator::start_one(name, program, test_env, hub, operator_options).await?;
        self.operators[position] = started;
        Ok(&self.operators[position])
    }
}
