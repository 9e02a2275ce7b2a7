//! HTTP client of one site: bounded responses, conditional requests of the index, redirects on the
//! same host only, and checked addresses.

use super::index::SiteLocation;
use super::limits::{CONNECT_TIMEOUT, INDEX_TIMEOUT, MAX_INDEX_BYTES, MAX_REDIRECTS};
use crate::network::address_check::{AddressPolicy, checked_client_builder};
use crate::network::http_client::{build_client, is_loopback_url, read_body, send_request};
use crate::sources::remote::{FileContent, read_file_body};
use crate::{ToolError, ToolErrorCode};
use caproot_core::text::SentenceResult as _;
use http::header::{ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use http::{HeaderMap, StatusCode};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Response, Url};
use tokio::time::timeout;

/// Path of the index (RFC 8615).
const INDEX_PATH: &str = "/.well-known/agent-skills/index.json";

/// HTTP client of a site.
#[derive(Debug, Clone)]
pub struct SiteClient {
    client: reqwest::Client,
    index: Url,
}

/// Index with the conditions of the next request.
pub struct FetchedIndex {
    pub bytes: Vec<u8>,
    /// Headers with the validators of the response (RFC 9110, section 13.1).
    pub conditions: HeaderMap,
}

/// Returns the location of a site that is given as a host, such as `docs.example`, or as a URL
/// without a path. Errors are the end of a sentence about the site.
pub fn parse_site(text: &str, policy: AddressPolicy) -> Result<SiteLocation, String> {
    let text = if text.contains("://") {
        text.to_owned()
    } else {
        format!("https://{text}")
    };
    let url = Url::parse(&text).context("it is no host or URL")?;

    let has_more = !matches!(url.path(), "" | "/")
        || url.query().is_some()
        || url.fragment().is_some()
        || !url.username().is_empty()
        || url.password().is_some();
    if has_more {
        return Err("it has more than a host and a port".to_owned());
    }
    match url.scheme() {
        "https" => {}
        "http" if policy == AddressPolicy::Any && is_loopback_url(url.as_str()) => {}
        "http" => return Err("it must use https".to_owned()),
        _ => return Err("its scheme is not https".to_owned()),
    }

    let host = url.host_str().ok_or("it has no host")?;
    policy.check_host(&url)?;

    let id = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let index = url.join(INDEX_PATH).map_err(|error| error.to_string())?;
    Ok(SiteLocation { id, index })
}

impl SiteClient {
    /// Returns the client of a site. Errors are the end of a sentence.
    pub async fn new(site: &SiteLocation, policy: AddressPolicy) -> Result<Self, String> {
        let builder = checked_client_builder(&site.index, policy).await?;
        let builder = builder
            .redirect(Policy::custom(follow_on_same_origin))
            .connect_timeout(CONNECT_TIMEOUT);
        Ok(Self {
            client: build_client(builder)?,
            index: site.index.clone(),
        })
    }

    /// Requests the index with conditions. Returns `None` if the index is unchanged. Errors are the end of
    /// a sentence about the site.
    pub async fn fetch_index(&self, conditions: HeaderMap) -> Result<Option<FetchedIndex>, String> {
        let fetch = async {
            let is_conditional = !conditions.is_empty();
            let request = self.client.get(self.index.clone()).headers(conditions);
            let response = send_request(request).await?;
            if is_conditional && response.status() == StatusCode::NOT_MODIFIED {
                return Ok(None);
            }
            check_status(&response)?;

            let mut conditions = HeaderMap::new();
            for (name, validator) in [(IF_NONE_MATCH, ETAG), (IF_MODIFIED_SINCE, LAST_MODIFIED)] {
                if let Some(value) = response.headers().get(validator) {
                    conditions.insert(name, value.clone());
                }
            }
            let bytes = read_body(response, MAX_INDEX_BYTES).await?;
            Ok(Some(FetchedIndex { bytes, conditions }))
        };
        let fetched = timeout(INDEX_TIMEOUT, fetch).await;
        let fetched: Result<_, String> =
            fetched.unwrap_or_else(|_| Err("it does not answer in time".to_owned()));
        fetched.context("its index cannot be read")
    }

    /// Requests a file, without a time limit.
    pub async fn fetch_file(&self, url: &str) -> Result<FileContent, ToolError> {
        let sent = send_request(self.client.get(url)).await;
        let response = sent.map_err(|reason| unavailable(&reason))?;
        if matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::GONE) {
            let message = "the site does not have the file now";
            return Err(ToolError::from_code(
                ToolErrorCode::ResourceNotFound,
                message,
            ));
        }

        check_status(&response).map_err(|reason| unavailable(&reason))?;
        let body = read_file_body(response).await;
        body.map_err(|reason| ToolError::from_code(ToolErrorCode::TooLarge, &reason))
    }
}

/// Follows a redirect to the host of the request. Any other redirect is a response of its own, which
/// is then an error.
fn follow_on_same_origin(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let first = attempt.previous().first().map(Url::origin);
    if attempt.previous().len() > MAX_REDIRECTS || first != Some(attempt.url().origin()) {
        attempt.stop()
    } else {
        attempt.follow()
    }
}

/// Checks that a response is a success. Errors are the end of a sentence.
fn check_status(response: &Response) -> Result<(), String> {
    let status = response.status();
    if status.is_redirection() {
        return Err("it redirects to another host, or without end".to_owned());
    }
    if status != StatusCode::OK {
        return Err(format!("it answers with {status}"));
    }
    Ok(())
}

fn unavailable(reason: &str) -> ToolError {
    let message = format!("the site does not return the file: {reason}");
    ToolError::from_code(ToolErrorCode::SourceUnavailable, &message)
}

#[cfg(test)]
mod tests {
    use super::{AddressPolicy, parse_site};

    #[test]
    fn a_site_is_a_host() {
        for (text, id) in [
            ("docs.example", "docs.example"),
            ("https://docs.example", "docs.example"),
            ("Docs.Example:8443", "docs.example:8443"),
            ("https://docs.example:443/", "docs.example"),
        ] {
            let site = parse_site(text, AddressPolicy::Global).expect(text);
            assert_eq!(site.id, id);
            assert!(site.index.path().ends_with("/agent-skills/index.json"));
        }
        for (text, part) in [
            ("", "no host or URL"),
            ("https://docs.example/path", "more than a host"),
            ("https://user@docs.example", "more than a host"),
            ("https://docs.example?x", "more than a host"),
            ("http://docs.example", "must use https"),
            ("file:///etc/passwd", "more than a host"),
            ("file://docs.example", "scheme"),
            ("127.0.0.1", "not a globally routable address"),
            ("https://[::1]:8443", "not a globally routable address"),
            ("https://2130706433", "not a globally routable address"),
        ] {
            let error = parse_site(text, AddressPolicy::Global).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(parse_site("http://127.0.0.1:1", AddressPolicy::Any).is_ok());
        assert!(parse_site("http://docs.example", AddressPolicy::Any).is_err());
    }
}
