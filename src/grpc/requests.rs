//! Validation of requests and conversion to domain types.

use super::errors::BadField;
use super::list_pages::ListQuery;
use super::resources;
use crate::catalog::{self, FilesRequest, ReadRequest};
use crate::fs::package_walk::FileListToken;
use crate::model::limits::{DEFAULT_READ_BYTES, MAX_PAGE_SIZE, MAX_READ_BYTES};
use crate::model::token::ReadCursor;
use crate::model::{AccessScope, RelPath, ResourceHandle, RootId, SelectedRoot, skill_file_name};
use crate::proto::caproot::v1 as pb;
use http::HeaderMap;
use std::collections::HashMap;
use std::time::Duration;

/// Validates a selection. A root that the request repeats with the same location is kept once.
pub fn parse_selection(
    roots: Vec<pb::SelectedCapabilityRoot>,
    max_roots: usize,
) -> Result<Vec<SelectedRoot>, BadField> {
    const FIELD: &str = "selected_capability_roots";
    if roots.len() > max_roots {
        let problem = format!("has {} roots; the limit is {max_roots}", roots.len());
        return Err(BadField::new(FIELD, problem).with_reason(pb::ErrorReason::TooManyRoots));
    }
    let mut seen: HashMap<RootId, usize> = HashMap::new();
    let mut selection: Vec<SelectedRoot> = Vec::with_capacity(roots.len());
    for (index, root) in roots.into_iter().enumerate() {
        let root = parse_root(root, &format!("{FIELD}[{index}]"))?;
        match seen.get(&root.id) {
            None => {
                seen.insert(root.id.clone(), selection.len());
                selection.push(root);
            }
            Some(first) if selection[*first] == root => {}
            Some(_) => {
                return Err(BadField::new(
                    format!("{FIELD}[{index}].id"),
                    "is used for two different locations; give each root its own id",
                ));
            }
        }
    }
    Ok(selection)
}

fn parse_root(root: pb::SelectedCapabilityRoot, field: &str) -> Result<SelectedRoot, BadField> {
    let id = RootId::new(&root.id).map_err(|e| BadField::new(format!("{field}.id"), e))?;
    let location = root.location.unwrap_or_default();
    Ok(SelectedRoot {
        id,
        location_type: location.r#type.into(),
        environment: location.environment_id.into(),
        path: location.path.into(),
    })
}

/// Returns the maximum number of skills or files on a page.
pub fn parse_page_size(requested: i32) -> Result<usize, BadField> {
    match usize::try_from(requested) {
        Ok(0) => Ok(MAX_PAGE_SIZE),
        Ok(requested) => Ok(requested.min(MAX_PAGE_SIZE)),
        Err(_) => Err(BadField::new("page_size", "is negative; use 0 for 1,000")),
    }
}

pub fn parse_consistency(requested: i32) -> Result<catalog::ConsistencyLevel, BadField> {
    match pb::Consistency::try_from(requested) {
        Ok(pb::Consistency::Unspecified | pb::Consistency::Cached) => {
            Ok(catalog::ConsistencyLevel::Cached)
        }
        Ok(pb::Consistency::Fresh) => Ok(catalog::ConsistencyLevel::Fresh),
        Err(_) => Err(BadField::new("consistency", "is not a value of Consistency")),
    }
}

pub fn parse_view(requested: i32) -> Result<pb::SkillView, BadField> {
    match pb::SkillView::try_from(requested) {
        Ok(pb::SkillView::Unspecified) => Ok(pb::SkillView::Full),
        Ok(view) => Ok(view),
        Err(_) => Err(BadField::new("view", "is not a value of SkillView")),
    }
}

/// Returns the interval of keep-alive events on an idle stream.
fn parse_bookmark_interval(requested: Option<prost_types::Duration>) -> Result<Duration, BadField> {
    const DEFAULT: Duration = Duration::from_secs(30);
    const MIN: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_mins(5);
    let requested = requested.map_or(Ok(Duration::ZERO), Duration::try_from);
    match requested {
        Ok(Duration::ZERO) => Ok(DEFAULT),
        Ok(requested) => Ok(requested.clamp(MIN, MAX)),
        Err(_) => Err(BadField::new("bookmark_interval", "is negative or not a valid duration")),
    }
}

/// Validated request of a stream.
pub struct WatchRequest {
    pub selection: Vec<SelectedRoot>,
    pub resume_token: String,
    pub bookmark_interval: Duration,
    product: String,
    view: pb::SkillView,
}

impl WatchRequest {
    /// Returns the query that the stream shows to a caller with this access scope.
    pub fn list_query<'a>(&'a self, access_scope: &'a AccessScope) -> ListQuery<'a> {
        ListQuery {
            access_scope,
            selection: &self.selection,
            product: &self.product,
            view: self.view,
            page_size: 0,
        }
    }
}

/// Validates the request of a stream.
pub fn parse_watch_request(
    request: pb::WatchSkillsRequest,
    max_roots: usize,
) -> Result<WatchRequest, BadField> {
    Ok(WatchRequest {
        selection: parse_selection(request.selected_capability_roots, max_roots)?,
        view: parse_view(request.view)?,
        bookmark_interval: parse_bookmark_interval(request.bookmark_interval)?,
        resume_token: request.resume_token,
        product: request.product,
    })
}

/// Validates a read, except its authority.
pub fn parse_read_request(request: pb::ReadResourceRequest) -> Result<ReadRequest, BadField> {
    let root = parse_root(request.root.unwrap_or_default(), "root")?;
    let package = parse_handle("package", &request.package, &root.id)?;
    let resource = match &*request.resource {
        "" => None,
        text => Some(parse_handle("resource", text, &root.id)?),
    };
    let max_bytes = match usize::try_from(request.max_bytes) {
        Ok(0) => DEFAULT_READ_BYTES,
        Ok(requested @ 4..) => requested.min(MAX_READ_BYTES),
        Ok(1..=3) => {
            return Err(BadField::new("max_bytes", "is below 4, too small for some characters"));
        }
        Err(_) => return Err(BadField::new("max_bytes", "is negative; use 0 for 8,192")),
    };
    let from = match &*request.cursor {
        "" => None,
        text => {
            let path = resource.clone().unwrap_or_else(|| package.join_path(&skill_file_name()));
            let cursor = ReadCursor::decode(text, &root.id, &path);
            let invalid = || {
                BadField::new(
                    "cursor",
                    "is not a cursor of this resource; start again without a cursor",
                )
            };
            Some(cursor.ok_or_else(invalid)?)
        }
    };
    Ok(ReadRequest {
        // A resource outside the package gives the same "not found" error as a missing file.
        resource: resource.map(|r| r.strip_prefix(&package).unwrap_or_else(RelPath::root)),
        root,
        package,
        continue_from: from.map(|c| (c.version, c.offset)),
        max_bytes,
        unless_digest: (!request.if_none_match.is_empty()).then_some(request.if_none_match),
        consistency: parse_consistency(request.consistency)?,
    })
}

/// Validates a list of files, except its authority.
pub fn parse_files_request(request: &pb::ListResourcesRequest) -> Result<FilesRequest, BadField> {
    let root = parse_root(request.root.clone().unwrap_or_default(), "root")?;
    let package = parse_handle("package", &request.package, &root.id)?;
    let max_files = parse_page_size(request.page_size)?;
    let from = match &*request.page_token {
        "" => None,
        text => {
            let token = FileListToken::decode(text, &resources::page_token_binding(request));
            let invalid = || {
                BadField::new(
                    "page_token",
                    "belongs to another list; start again without a page token",
                )
            };
            Some(token.ok_or_else(invalid)?)
        }
    };
    Ok(FilesRequest {
        root,
        package,
        bookmark: from,
        max_files,
        with_digests: request.include_digests,
    })
}

fn parse_handle(field: &str, text: &str, root: &RootId) -> Result<RelPath, BadField> {
    let handle = ResourceHandle::parse(text).map_err(|e| BadField::new(field, e))?;
    if handle.root != *root {
        return Err(BadField::new(field, "is a handle of another root"));
    }
    Ok(handle.path)
}

/// Returns the timeout in the `grpc-timeout` header: up to 8 digits and a unit. Source: gRPC over
/// HTTP/2, "Timeout".
pub fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(value * 3_600)),
        "M" => Some(Duration::from_secs(value * 60)),
        "S" => Some(Duration::from_secs(value)),
        "m" => Some(Duration::from_millis(value)),
        "u" => Some(Duration::from_micros(value)),
        "n" => Some(Duration::from_nanos(value)),
        _ => None,
    }
}
