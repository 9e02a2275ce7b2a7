//! Stand-in for the daemon.
#![allow(missing_docs, clippy::unused_async)]
use crate::config::Config;

#[derive(Debug, thiserror::Error)]
#[error("stand-in")]
pub struct StartError;

impl StartError {
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        73
    }
}

pub struct App(Config);

pub async fn build(config: Config) -> Result<App, StartError> {
    Ok(App(config))
}

impl App {
    #[must_use]
    pub fn listening(&self) -> Vec<String> {
        self.0.0.listen.clone()
    }

    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), StartError> {
        stop.await;
        Ok(())
    }
}
