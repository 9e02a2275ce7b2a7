//! Site as a source of skills: the index `https://HOST/.well-known/agent-skills/index.json` and the
//! SKILL.md files that it names. The index is requested at the start, every five minutes, and after a failed
//! verification, with conditional requests. Each file is requested when it is read, and is verified. All responses are [limited](limits).
//!
//! A site is reached over https. Redirects to another host, archives, and addresses that are not
//! globally routable are refused, and proxies of the environment are not used. A handle begins with
//! `site://` and the host, such as `site://docs.example/pdf/SKILL.md`.
//!
//! ```no_run
//! use caproot_session::sources::site::{SiteConfig, SiteSource};
//!
//! # async fn start() -> Result<(), caproot_session::sources::site::SiteNameError> {
//! let source = SiteSource::start(SiteConfig::new("docs.example")).await?;
//! # drop(source);
//! # Ok(())
//! # }
//! ```

mod client;
mod index;
pub mod limits;

use super::SourceKind;
use super::remote::{
    DeclaredFile, FileContent, ListedSkills, ReadLimits, RemoteServer, RemoteSkill, RemoteSkills,
    RemoteSource,
};
use crate::ToolError;
use crate::network::address_check::AddressPolicy;
use caproot_core::sync::Mutex;
use caproot_core::wire::handle::is_within;
use client::{build_site_client, fetch_index, fetch_site_file, parse_site};
use http::HeaderMap;
use index::{SiteLocation, parse_index};
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Configuration of a site.
#[derive(Debug, Clone)]
pub struct SiteConfig {
    /// Host of the site, such as `docs.example`, with a port if needed, or its URL without a path.
    pub host: String,
    /// Whether addresses that are not globally routable are allowed, such as those of a local network.
    /// Also allows `http` on a loopback address.
    pub allows_private_addresses: bool,
    /// Time limit of a read; 10 s by default.
    pub read_timeout: Duration,
    /// How long `start` waits for the first list; 5 s by default. A later list is used when it
    /// arrives.
    pub start_timeout: Duration,
}

impl SiteConfig {
    /// Returns a site with the default limits, on globally routable addresses only.
    #[must_use]
    pub fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            allows_private_addresses: false,
            read_timeout: limits::READ_TIMEOUT,
            start_timeout: limits::START_TIMEOUT,
        }
    }
}

/// Site that cannot be a source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid site {host:?}: {reason}")]
pub struct SiteNameError {
    host: String,
    reason: String,
}

/// Skills of one site.
pub type SiteSource = RemoteSource<SkillSite>;

/// Site with an index of skills, for [`RemoteSource`].
#[derive(Debug)]
pub struct SkillSite {
    location: SiteLocation,
    client: reqwest::Client,
    latest: Mutex<LatestIndex>,
}

/// Time of the latest request, and the conditions of the next one.
#[derive(Debug, Clone, Default)]
struct LatestIndex {
    conditions: HeaderMap,
    requested_at: Option<Instant>,
}

impl SiteSource {
    /// Starts the source of a site and follows its index until the source is dropped. Needs a tokio
    /// runtime.
    ///
    /// # Errors
    ///
    /// A host that cannot be a site, or an address that is not allowed.
    pub async fn start(config: SiteConfig) -> Result<Self, SiteNameError> {
        let refused = |reason| SiteNameError {
            host: config.host.clone(),
            reason,
        };
        let policy = if config.allows_private_addresses {
            AddressPolicy::Any
        } else {
            AddressPolicy::Global
        };
        let location = parse_site(&config.host, policy).map_err(refused)?;

        let site = SkillSite {
            client: build_site_client(&location, policy)
                .await
                .map_err(refused)?,
            location,
            latest: Mutex::default(),
        };
        let limits = ReadLimits {
            read_timeout: config.read_timeout,
            // A site makes no statements about single skills.
            max_age: Duration::MAX,
        };
        let source = Self::follow(site, limits);
        source.wait_for_list(config.start_timeout).await;
        Ok(source)
    }
}

impl RemoteServer for SkillSite {
    type Connection = ();
    type Link = ();

    const KIND: SourceKind = SourceKind::Site;
    const MAX_RETRY_DELAY: Duration = limits::MAX_RETRY_DELAY;

    fn id(&self) -> &str {
        &self.location.id
    }

    fn owns_handle(authority: &str, handle: &str) -> bool {
        is_within(handle, &format!("site://{authority}"))
    }

    fn connect(&self, _: &Arc<Notify>) -> impl Future<Output = Result<(), String>> + Send {
        ready(Ok(()))
    }

    fn link((): &()) {}

    /// Requests the index with a condition. After a failure, an unchanged index is valid again.
    async fn list_skills(
        &self,
        (): &mut (),
        before: &RemoteSkills,
    ) -> Result<Option<ListedSkills>, String> {
        let latest = self.latest.lock().clone();
        if let Some(requested_at) = latest.requested_at {
            sleep_until(requested_at + limits::MIN_RETRY_DELAY).await;
        }
        self.latest.lock().requested_at = Some(Instant::now());

        let index = &self.location.index;
        let Some(index) = fetch_index(&self.client, index, latest.conditions).await? else {
            return Ok(None);
        };
        let listed = parse_index(&self.location, &index.bytes, before)?;
        self.latest.lock().conditions = index.conditions;
        Ok(Some(listed))
    }

    fn wait_for_change((): &mut ()) -> impl Future<Output = Result<(), String>> + Send {
        pending()
    }

    fn wait_for_retry(&self, relist: &Notify) -> impl Future<Output = ()> + Send {
        relist.notified()
    }

    fn log_failure(&self, reason: &str) {
        tracing::warn!(site = self.location.id, reason, "site is unavailable");
    }

    fn locate_file(skill: &RemoteSkill, _: &str) -> Result<String, ToolError> {
        Ok(skill.declared.location.clone())
    }

    fn fetch_file(
        &self,
        (): &(),
        location: &str,
        _: Option<DeclaredFile>,
    ) -> impl Future<Output = Result<FileContent, ToolError>> + Send {
        fetch_site_file(&self.client, location)
    }
}
