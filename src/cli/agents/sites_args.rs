//! Flags of the sites whose skills a session has.

use crate::cli::exit;
use crate::cli::failure::{CommandFailure, CommandResult as _};
use caproot_session::SkillSource;
use caproot_session::sources::site::{SiteConfig, SiteSource};
use clap::Args;
use futures_util::future::{join_all, try_join_all};
use std::sync::Arc;
use std::time::Duration;

/// Flags of the sites.
#[derive(Debug, Args)]
pub struct SitesArgs {
    /// Also the skills of the site HOST, by its index of skills. Can be repeated
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

    /// Starts the sites as sources, without their first lists.
    pub async fn open(&self) -> Result<Vec<SiteSource>, CommandFailure> {
        let public = self.site.iter().map(|host| (host, false));
        let private = self.private_site.iter().map(|host| (host, true));
        let starts = public.chain(private).map(|(host, is_private)| {
            SiteSource::start(SiteConfig {
                allows_private_addresses: is_private,
                start_timeout: Duration::ZERO,
                ..SiteConfig::new(host)
            })
        });

        let started = try_join_all(starts).await;
        started.or_exit(exit::BAD_CONFIG)
    }
}

/// Waits for the first lists of the sites at most for `within`. Returns all sites.
pub async fn wait_for_sites(sites: Vec<SiteSource>, within: Duration) -> Vec<Arc<dyn SkillSource>> {
    join_all(sites.iter().map(|site| site.wait_for_list(within))).await;

    let sources = sites.into_iter();
    sources
        .map(|site| Arc::new(site) as Arc<dyn SkillSource>)
        .collect()
}
