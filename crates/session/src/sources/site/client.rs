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

/// Index with the conditions of the next request.
pub struct FetchedIndex {
    pub bytes: Vec<u8>,
    /// Headers with the validators of the response (RFC 9110, section 13.1).
    pub conditions: HeaderMap,
}

/// Returns the location of a site that is given as a host, such as `docs.example`, or as a URL
/// without a path. Errors are the end of a sentence about the site.
pub fn parse_site(text: &str, policy: AddressPolicy) -> Result<SiteLocation, String> {
    let url = if text.contains("://") {
        Url::parse(text)
    } else {
        Url::parse(&format!("https://{text}"))
    }
    .context("it is no host or URL")?;

    if !matches!(url.path(), "" | "/")
        || url.query().is_some()
        || url.fragment().is_some()
        || !url.username().is_empty()
        || url.password().is_some()
    {
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

    Ok(SiteLocation {
        id: match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        },
        index: url.join(INDEX_PATH).map_err(|error| error.to_string())?,
    })
}

/// Returns the client of a site. Errors are the end of a sentence.
pub async fn build_site_client(
    site: &SiteLocation,
    policy: AddressPolicy,
) -> Result<reqwest::Client, String> {
    build_client(
        checked_client_builder(&site.index, policy)
            .await?
            .redirect(Policy::custom(follow_on_same_origin))
            .connect_timeout(CONNECT_TIMEOUT),
    )
}

/// Requests the index with conditions. Returns `None` if the index is unchanged. Errors are the end of
/// a sentence about the site.
pub async fn fetch_index(
    client: &reqwest::Client,
    index: &Url,
    conditions: HeaderMap,
) -> Result<Option<FetchedIndex>, String> {
    let fetch = async {
        let is_conditional = !conditions.is_empty();
        let response = send_request(client.get(index.clone()).headers(conditions)).await?;
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
        Ok::<_, String>(Some(FetchedIndex {
            bytes: read_body(response, MAX_INDEX_BYTES).await?,
            conditions,
        }))
    };
    timeout(INDEX_TIMEOUT, fetch)
        .await
        .unwrap_or_else(|_| Err("it does not answer in time".to_owned()))
        .context("its index cannot be read")
}

/// Requests a file, without a time limit.
pub async fn fetch_site_file(
    client: &reqwest::Client,
    url: &str,
) -> Result<FileContent, ToolError> {
    let response = send_request(client.get(url))
        .await
        .map_err(|reason| unavailable(&reason))?;
    if matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::GONE) {
        return Err(ToolError::from_code(
            ToolErrorCode::ResourceNotFound,
            "the site does not have the file now",
        ));
    }

    check_status(&response).map_err(|reason| unavailable(&reason))?;
    read_file_body(response)
        .await
        .map_err(|reason| ToolError::from_code(ToolErrorCode::TooLarge, &reason))
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
    ToolError::from_code(
        ToolErrorCode::SourceUnavailable,
        &format!("the site does not return the file: {reason}"),
    )
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
