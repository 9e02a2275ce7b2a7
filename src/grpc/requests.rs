//! Validation of requests and conversion to domain types.

use super::errors::BadField;
use super::resources;
use crate::catalog::{self, FilesRequest, ReadRequest};
use crate::domain::limits::{DEFAULT_READ_BYTES, MAX_PAGE_SIZE, MAX_READ_BYTES};
use crate::domain::package_walk::FileListToken;
use crate::domain::token::ReadCursor;
use crate::domain::{RelPath, ResourceHandle, RootId, SelectedRoot, skill_file_name};
use crate::proto::caproot::v1 as pb;
use std::collections::HashMap;
use std::time::Duration;
use tonic::metadata::MetadataMap;

/// Validates a selection. A root that the request repeats with the same location is kept once.
pub(super) fn parse_selection(
    roots: Vec<pb::SelectedCapabilityRoot>,
    max_roots: usize,
) -> Result<Vec<SelectedRoot>, BadField> {
    const FIELD: &str = "selected_capability_roots";
    if roots.len() > max_roots {
        return Err(BadField {
            reason: "TOO_MANY_ROOTS",
            ..BadField::new(FIELD, format!("has {} roots; the limit is {max_roots}", roots.len()))
        });
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
                    "names two roots with different locations; give each its own id",
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
pub(super) fn parse_page_size(asked: i32) -> Result<usize, BadField> {
    match usize::try_from(asked) {
        Ok(0) => Ok(MAX_PAGE_SIZE),
        Ok(asked) => Ok(asked.min(MAX_PAGE_SIZE)),
        Err(_) => Err(BadField::new("page_size", "is negative; 0 means 1,000")),
    }
}

pub(super) fn parse_consistency(asked: i32) -> Result<catalog::ConsistencyLevel, BadField> {
    match pb::Consistency::try_from(asked) {
        Ok(pb::Consistency::Unspecified | pb::Consistency::Cached) => {
            Ok(catalog::ConsistencyLevel::Cached)
        }
        Ok(pb::Consistency::Fresh) => Ok(catalog::ConsistencyLevel::Fresh),
        Err(_) => Err(BadField::new("consistency", "is no value of Consistency")),
    }
}

pub(super) fn parse_view(asked: i32) -> Result<pb::SkillView, BadField> {
    match pb::SkillView::try_from(asked) {
        Ok(pb::SkillView::Unspecified) => Ok(pb::SkillView::Full),
        Ok(view) => Ok(view),
        Err(_) => Err(BadField::new("view", "is no value of SkillView")),
    }
}

/// Returns the interval of keep-alive events on an idle stream.
pub(super) fn parse_bookmark_interval(
    asked: Option<prost_types::Duration>,
) -> Result<Duration, BadField> {
    const DEFAULT: Duration = Duration::from_secs(30);
    const LEAST: Duration = Duration::from_secs(1);
    const MOST: Duration = Duration::from_mins(5);
    let asked = asked.map_or(Ok(Duration::ZERO), Duration::try_from);
    match asked {
        Ok(Duration::ZERO) => Ok(DEFAULT),
        Ok(asked) => Ok(asked.clamp(LEAST, MOST)),
        Err(_) => Err(BadField::new("bookmark_interval", "is negative or no duration")),
    }
}

/// Validates a read, except its authority.
pub(super) fn parse_read_request(
    request: pb::ReadResourceRequest,
) -> Result<ReadRequest, BadField> {
    let root = parse_root(request.root.unwrap_or_default(), "root")?;
    let package = parse_handle("package", &request.package, &root.id)?;
    let resource = match &*request.resource {
        "" => None,
        text => Some(parse_handle("resource", text, &root.id)?),
    };
    let max_bytes = match usize::try_from(request.max_bytes) {
        Ok(0) => DEFAULT_READ_BYTES,
        Ok(asked @ 4..) => asked.min(MAX_READ_BYTES),
        Ok(1..=3) => {
            return Err(BadField::new("max_bytes", "is under 4, which may not hold a character"));
        }
        Err(_) => return Err(BadField::new("max_bytes", "is negative; 0 means 8,192")),
    };
    let from = match &*request.cursor {
        "" => None,
        text => {
            let place = resource.clone().unwrap_or_else(|| package.join_path(&skill_file_name()));
            let cursor = ReadCursor::decode(text, &root.id, &place);
            let none = || BadField::new("cursor", "is no cursor of this resource; start again");
            Some(cursor.ok_or_else(none)?)
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
pub(super) fn parse_files_request(
    request: &pb::ListResourcesRequest,
) -> Result<FilesRequest, BadField> {
    let root = parse_root(request.root.clone().unwrap_or_default(), "root")?;
    let package = parse_handle("package", &request.package, &root.id)?;
    let max_files = parse_page_size(request.page_size)?;
    let from = match &*request.page_token {
        "" => None,
        text => {
            let bookmark = FileListToken::decode(text, &resources::page_token_binding(request));
            let none = || BadField::new("page_token", "was not given for this list; start again");
            Some(bookmark.ok_or_else(none)?)
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
pub(super) fn grpc_timeout(metadata: &MetadataMap) -> Option<Duration> {
    parse_grpc_timeout(metadata.get(TIMEOUT_HEADER)?.to_str().ok()?)
}

/// Header with the timeout of a call.
pub(super) const TIMEOUT_HEADER: &str = "grpc-timeout";

/// Parses the value of a `grpc-timeout` header.
pub(super) fn parse_grpc_timeout(text: &str) -> Option<Duration> {
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
