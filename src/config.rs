//! Stand-in for the daemon's configuration.
#![allow(missing_docs)]
use crate::endpoint::Env;
use std::path::PathBuf;

pub struct Flags {
    pub roots: Vec<RootFlag>,
    pub allow: Vec<PathBuf>,
    pub environment_ids: Vec<String>,
    pub listen: Vec<String>,
}

pub struct RootFlag {
    pub id: Option<String>,
    pub dir: PathBuf,
}

pub struct Config(pub Flags);

impl Config {
    pub fn from_flags(flags: Flags, _env: &Env) -> Result<Config, Vec<String>> {
        let bad: Vec<_> = flags.roots.iter().filter(|r| !r.dir.is_dir()).collect();
        if !bad.is_empty() {
            return Err(bad.iter().map(|r| format!("{} is missing.", r.dir.display())).collect());
        }
        Ok(Config(flags))
    }
}
