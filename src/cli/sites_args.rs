//! Flags of the sites whose skills a session has.

use super::exit;
use super::failure::CommandFailure;
use caproot_client::session::SkillSource;
use caproot_client::session::sources::site::{SiteConfig, SiteSource};
use clap::Args;
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;

/// Flags of the sites.
#[derive(Debug, Args)]
pub struct SitesArgs {
    /// Also the skills of https://HOST/.well-known/agent-skills/index.json. Can be repeated
    #[arg(long, value_name = "HOST")]
    site: Vec<String>,
    /// As --site, for a site that may have an address that is not globally routable, such as one of a
    /// local network. HOST may also be an http URL of a loopback address
    #[arg(long, value_name = "HOST")]
    private_site: Vec<String>,
}

impl SitesArgs {
    /// Whether there is a site.
    pub fn has_sites(&self) -> bool {
        !self.site.is_empty() || !self.private_site.is_empty()
    }

    /// Starts the sites as sources at once, and waits for their first lists at most for `within`.
    pub async fn start(
        &self,
        within: Duration,
    ) -> Result<Vec<Arc<dyn SkillSource>>, CommandFailure> {
        let public = self.site.iter().map(|host| SiteConfig::new(host));
        let private = self.private_site.iter().map(|host| SiteConfig {
            allows_private_addresses: true,
            ..SiteConfig::new(host)
        });
        let starts = public.chain(private).map(|config| {
            SiteSource::start(SiteConfig {
                start_timeout: within,
                ..config
            })
        });

        let mut sources: Vec<Arc<dyn SkillSource>> = Vec::new();
        for started in join_all(starts).await {
            let source = started.map_err(|error| CommandFailure::new(exit::BAD_CONFIG, error))?;
            sources.push(Arc::new(source));
        }
        Ok(sources)
    }
}
