//! Validation of requests and conversion to domain types.

use super::auth::caller_access_scope;
use super::errors::{BadField, RpcError};
use super::resources;
use crate::daemon::catalog::{
    CatalogView, ConsistencyLevel, FilesRequest, ReadRequest, ScopedSelection, WaitBudget,
};
use crate::daemon::fs::package_walk::FileListToken;
use crate::daemon::model::token::{PageToken, ReadCursor, ResumeToken};
use crate::daemon::model::{SelectedRoot, skill_file_name};
use caproot_core::proto::caproot::v1 as pb;
use caproot_core::wire::cursor::Cursor as _;
use caproot_core::wire::limits::{DEFAULT_READ_BYTES, MAX_PAGE_SIZE, MAX_READ_BYTES};
use caproot_core::wire::{RelPath, ResourceHandle, RootId, handle, is_digest};
use http::HeaderMap;
use indexmap::IndexMap;
use std::collections::BTreeSet;
use std::time::Duration;
use tonic::{Request, Status};

/// Header with the timeout of a call.
const GRPC_TIMEOUT: &str = "grpc-timeout";
/// Tag that distinguishes page tokens of `ResolveRoots` from those of `ListSkills`.
const RESOLVE_TOKEN_TAG: u8 = 2;
/// Tag that distinguishes lists of root states from lists of skills.
const ROOTS_ONLY_TAG: u8 = 3;

/// Timeout that the caller of a request set. The load limit reads it from the header.
#[derive(Debug, Clone, Copy)]
pub struct CallTimeout(pub Option<Duration>);

/// Validates a selection. A root that the request repeats with the same location is kept once.
fn parse_selection(
    roots: Vec<pb::SelectedCapabilityRoot>,
    max_roots: usize,
) -> Result<Vec<SelectedRoot>, BadField> {
    const FIELD: &str = "selected_capability_roots";
    if roots.len() > max_roots {
        let problem = format!("has {} roots; the limit is {max_roots}", roots.len());
        return Err(BadField::new(FIELD, problem).with_reason(pb::ErrorReason::TooManyRoots));
    }

    let mut selection = IndexMap::with_capacity(roots.len());
    for (index, root) in roots.into_iter().enumerate() {
        let root = parse_root(root, &format!("{FIELD}[{index}]"))?;
        match selection.get(&root.id) {
            None => drop(selection.insert(root.id.clone(), root)),
            Some(first) if *first == root => {}
            Some(_) => {
                return Err(BadField::new(
                    format!("{FIELD}[{index}].id"),
                    "is used for two different locations; give each root its own id",
                ));
            }
        }
    }

    Ok(selection.into_values().collect())
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
fn parse_page_size(requested: i32) -> Result<usize, BadField> {
    match usize::try_from(requested) {
        Ok(0) => Ok(MAX_PAGE_SIZE),
        Ok(requested) => Ok(requested.min(MAX_PAGE_SIZE)),
        Err(_) => Err(BadField::new("page_size", "is negative; use 0 for 1,000")),
    }
}

fn parse_consistency(requested: i32) -> Result<ConsistencyLevel, BadField> {
    match pb::Consistency::try_from(requested) {
        Ok(pb::Consistency::Unspecified | pb::Consistency::Cached) => Ok(ConsistencyLevel::Cached),
        Ok(pb::Consistency::Fresh) => Ok(ConsistencyLevel::Fresh),
        Err(_) => Err(BadField::new(
            "consistency",
            "is not a value of Consistency",
        )),
    }
}

/// Decodes a page token; `None` for the first page.
fn parse_page_token<T>(
    text: &str,
    decode: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, BadField> {
    if text.is_empty() {
        return Ok(None);
    }
    match decode(text) {
        None => Err(BadField::new(
            "page_token",
            "belongs to another list; start again without a page token",
        )),
        token => Ok(token),
    }
}

fn parse_view(requested: i32) -> Result<pb::SkillView, BadField> {
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
    match requested.map_or(Ok(Duration::ZERO), Duration::try_from) {
        Ok(Duration::ZERO) => Ok(DEFAULT),
        Ok(requested) => Ok(requested.clamp(MIN, MAX)),
        Err(_) => Err(BadField::new(
            "bookmark_interval",
            "is negative or not a valid duration",
        )),
    }
}

/// Query of a list or a stream, without the position in it.
pub struct ListQuery {
    pub selection: ScopedSelection,
    pub product: String,
    pub view: pb::SkillView,
}

/// Validated request for a page of `ListSkills` or `ResolveRoots`.
pub struct PageRequest {
    pub query: ListQuery,
    pub known_catalogs: KnownCatalogs,
    /// Whether the page has only the states of the roots.
    pub roots_only: bool,
    pub page_size: usize,
    /// Index of the first root of the page in the selection, and of its first item.
    pub begin: (usize, usize),
    /// Query that the page token must match. Responses with equal bindings list the same.
    pub token_binding: Vec<u8>,
    /// Revision that the page continues.
    pub token: Option<PageToken>,
    pub consistency: ConsistencyLevel,
    pub wait_budget: WaitBudget,
}

/// Validated request of a stream.
pub struct WatchRequest {
    pub query: ListQuery,
    pub resume_token: String,
    /// Catalogs of the caller's state, for a stream that begins with a reset.
    pub known_catalogs: KnownCatalogs,
    pub bookmark_interval: Duration,
}

impl ListQuery {
    /// Returns the query that a page token must match. A length precedes each text, so that
    /// different queries have different bytes. Tokens are only valid for callers with the same
    /// access scope.
    pub fn page_token_binding(&self) -> Vec<u8> {
        self.encode_with_roots(self.selection.roots.iter())
    }

    /// Returns the resume token of a revision. The order of the roots does not matter.
    pub fn resume_token(&self, epoch: u64, revision: u64) -> ResumeToken {
        let mut roots: Vec<_> = self.selection.roots.iter().collect();
        // Ids are unique in a selection.
        roots.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        ResumeToken::new(epoch, revision, &self.encode_with_roots(roots.into_iter()))
    }

    fn encode_with_roots<'s>(&self, roots: impl Iterator<Item = &'s SelectedRoot>) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.view == pb::SkillView::Basic)];
        let roots =
            roots.flat_map(|s| [s.id.as_str(), &*s.location_type, &*s.environment, &*s.path]);
        append_texts(&mut bytes, std::iter::once(&*self.product).chain(roots));
        // Empty for an unrestricted caller; otherwise the first byte differs from a length.
        bytes.extend(self.selection.access_scope.to_bytes());
        bytes
    }
}

/// Appends texts to bytes that identify a query. A length precedes each text.
fn append_texts<'a>(bytes: &mut Vec<u8>, texts: impl Iterator<Item = &'a str>) {
    for text in texts {
        bytes.extend((text.len() as u64).to_be_bytes());
        bytes.extend(text.as_bytes());
    }
}

impl PageRequest {
    pub fn is_first_page(&self) -> bool {
        self.begin == (0, 0)
    }

    /// Returns the token of the page that begins at a root and an item.
    pub fn next_page_token(&self, epoch: u64, revision: u64, position: (usize, usize)) -> String {
        PageToken {
            epoch,
            revision,
            position,
        }
        .encode(&self.token_binding)
    }
}

/// Validates a request for a page of `ListSkills`.
pub fn parse_list_request(
    request: Request<pb::ListSkillsRequest>,
    max_roots: usize,
) -> Result<PageRequest, Status> {
    let tag = request.get_ref().roots_only.then_some(ROOTS_ONLY_TAG);
    parse_page_request(request, tag, max_roots)
}

/// Validates a request for a page of `ResolveRoots`.
pub fn parse_resolve_request(
    request: Request<pb::ResolveRootsRequest>,
    max_roots: usize,
) -> Result<PageRequest, Status> {
    let request = request.map(|request| pb::ListSkillsRequest {
        selected_capability_roots: request.selected_capability_roots,
        page_size: request.page_size,
        page_token: request.page_token,
        consistency: request.consistency,
        ..pb::ListSkillsRequest::default()
    });
    parse_page_request(request, Some(RESOLVE_TOKEN_TAG), max_roots)
}

/// Validates a request for a page. `tag` distinguishes the page tokens from those of a list of skills.
fn parse_page_request(
    request: Request<pb::ListSkillsRequest>,
    tag: Option<u8>,
    max_roots: usize,
) -> Result<PageRequest, Status> {
    let access_scope = caller_access_scope(request.extensions())?;
    let wait_budget = call_wait_budget(&request);
    let request = request.into_inner();

    let roots = parse_selection(request.selected_capability_roots, max_roots)?;
    let known_catalogs = KnownCatalogs::parse(request.known_catalogs, &roots)?;
    let query = ListQuery {
        selection: ScopedSelection {
            access_scope,
            roots,
        },
        product: request.product,
        view: parse_view(request.view)?,
    };

    let mut token_binding: Vec<u8> = tag.into_iter().collect();
    token_binding.extend(query.page_token_binding());
    known_catalogs.append_to(&mut token_binding);

    let page_size = parse_page_size(request.page_size)?;
    let consistency = parse_consistency(request.consistency)?;
    let token = parse_page_token(&request.page_token, |text| {
        PageToken::decode(text, &token_binding)
    })?;

    Ok(PageRequest {
        query,
        known_catalogs,
        roots_only: request.roots_only,
        page_size,
        begin: token.map_or((0, 0), |token| token.position),
        token_binding,
        token,
        consistency,
        wait_budget,
    })
}

/// Validates the request of a stream.
pub fn parse_watch_request(
    request: Request<pb::WatchSkillsRequest>,
    max_roots: usize,
) -> Result<WatchRequest, Status> {
    let access_scope = caller_access_scope(request.extensions())?;
    let request = request.into_inner();
    let roots = parse_selection(request.selected_capability_roots, max_roots)?;

    Ok(WatchRequest {
        known_catalogs: KnownCatalogs::parse(request.known_catalogs, &roots)?,
        query: ListQuery {
            selection: ScopedSelection {
                access_scope,
                roots,
            },
            view: parse_view(request.view)?,
            product: request.product,
        },
        bookmark_interval: parse_bookmark_interval(request.bookmark_interval)?,
        resume_token: request.resume_token,
    })
}

/// Validates a read.
pub fn parse_read_request(
    request: Request<pb::ReadResourceRequest>,
) -> Result<ReadRequest, Status> {
    let access_scope = caller_access_scope(request.extensions())?;
    let request = request.into_inner();

    let root = parse_root(request.root.unwrap_or_default(), "root")?;
    let package = parse_handle("package", &request.package, &root.id)?;
    let resource = match &*request.resource {
        "" => None,
        text if text.starts_with(handle::HANDLE_SCHEME) => {
            Some(parse_handle("resource", text, &root.id)?)
        }
        _ => {
            let problem = "is not a handle; send the package in front, such as \
                           `PACKAGE/references/x.md`";
            return Err(BadField::new("resource", problem).into());
        }
    };

    let max_bytes = match usize::try_from(request.max_bytes) {
        Ok(0) => DEFAULT_READ_BYTES,
        Ok(requested @ 4..) => requested.min(MAX_READ_BYTES),
        Ok(1..=3) => {
            let problem = "is below 4, too small for some characters";
            return Err(BadField::new("max_bytes", problem).into());
        }
        Err(_) => return Err(BadField::new("max_bytes", "is negative; use 0 for 8,192").into()),
    };

    let continue_from = match &*request.cursor {
        "" => None,
        text => {
            let path = resource
                .clone()
                .unwrap_or_else(|| package.join_path(&skill_file_name()));
            let binding = handle::format_handle(&root.id, &path);
            let Some(cursor) = ReadCursor::decode(text, binding.as_bytes()) else {
                let problem = "is not a cursor of this resource; start again without a cursor";
                return Err(BadField::new("cursor", problem).into());
            };
            Some((cursor.version, cursor.offset))
        }
    };

    let consistency = parse_consistency(request.consistency)?;
    check_authority(request.authority.as_ref(), &root.id)?;

    Ok(ReadRequest {
        access_scope,
        // A resource outside the package gives the same "not found" error as a missing file.
        resource: resource.map(|r| r.strip_prefix(&package).unwrap_or_else(RelPath::root)),
        root,
        package,
        continue_from,
        max_bytes,
        unless_digest: (!request.if_none_match.is_empty()).then_some(request.if_none_match),
        consistency,
    })
}

/// Validates a request for a list of files.
pub fn parse_files_request(
    request: &Request<pb::ListResourcesRequest>,
) -> Result<FilesRequest, Status> {
    let access_scope = caller_access_scope(request.extensions())?;
    let request = request.get_ref();

    let root = parse_root(request.root.clone().unwrap_or_default(), "root")?;
    let package = parse_handle("package", &request.package, &root.id)?;
    let max_files = parse_page_size(request.page_size)?;

    let binding = resources::page_token_binding(request);
    let bookmark = parse_page_token(&request.page_token, |text| {
        FileListToken::decode(text, &binding)
    })?;

    check_authority(request.authority.as_ref(), &root.id)?;

    Ok(FilesRequest {
        access_scope,
        root,
        package,
        bookmark,
        max_files,
        with_digests: request.include_digests,
    })
}

/// Returns an error if the request has an authority and it is not the authority of the root.
fn check_authority(authority: Option<&pb::Authority>, root: &RootId) -> Result<(), Status> {
    if authority.is_some_and(|it| it.kind != "executor" || it.id != root.as_str()) {
        return Err(RpcError::AuthorityMismatch.into_status(Some(root.as_str())));
    }
    Ok(())
}

fn parse_handle(field: &str, text: &str, root: &RootId) -> Result<RelPath, BadField> {
    if text.is_empty() {
        let problem = "is empty; send a listed handle, such as `skill://ROOT/DIRECTORY`";
        return Err(BadField::new(field, problem));
    }
    let handle = ResourceHandle::parse(text).map_err(|e| BadField::new(field, e))?;
    if handle.root != *root {
        return Err(BadField::new(field, "is a handle of another root"));
    }
    Ok(handle.path)
}

/// Returns the wait budget of a call with this deadline.
pub fn call_wait_budget<T>(request: &Request<T>) -> WaitBudget {
    let timeout = request.extensions().get::<CallTimeout>();
    WaitBudget::new(timeout.and_then(|timeout| timeout.0))
}

/// Returns the timeout in the `grpc-timeout` header: 1 to 8 digits and a unit. Source: gRPC over
/// HTTP/2, "Timeout".
pub fn grpc_timeout(headers: &HeaderMap) -> Result<Option<Duration>, BadField> {
    let Some(value) = headers.get(GRPC_TIMEOUT) else {
        return Ok(None);
    };
    match value.to_str().ok().and_then(parse_timeout) {
        None => Err(BadField::new(
            GRPC_TIMEOUT,
            "is not a timeout; send 1 to 8 digits and one of the units H, M, S, m, u and n, such as \
             `5S` for 5 seconds or `500m` for 500 milliseconds",
        )),
        timeout => Ok(timeout),
    }
}

fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    // `parse` also accepts a sign.
    if digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let value = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_hours(value),
        "M" => Duration::from_mins(value),
        "S" => Duration::from_secs(value),
        "m" => Duration::from_millis(value),
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        _ => return None,
    })
}

/// Catalogs that a caller holds, so that the daemon need not send them: root ids with digests.
#[derive(Default)]
pub struct KnownCatalogs(BTreeSet<(String, String)>);

impl KnownCatalogs {
    /// Takes the catalogs of selected roots from a request. A root that was not ready has no digest.
    fn parse(
        catalogs: Vec<pb::KnownCatalog>,
        selection: &[SelectedRoot],
    ) -> Result<Self, BadField> {
        let ids: BTreeSet<_> = selection.iter().map(|root| root.id.as_str()).collect();
        let mut known = BTreeSet::new();
        for (index, catalog) in catalogs.into_iter().enumerate() {
            let digest = catalog.catalog_digest;
            if !digest.is_empty() && !is_digest(&digest) {
                return Err(BadField::new(
                    format!("known_catalogs[{index}].catalog_digest"),
                    "is not `sha256:` and 64 lower-case hex digits; send the `catalog_digest` of a root \
                     status unchanged",
                ));
            }
            if ids.contains(&*catalog.root_id) {
                known.insert((catalog.root_id, digest));
            }
        }
        Ok(Self(known))
    }

    /// Removes the catalogs of the roots that are ready in a view.
    pub fn remove_ready_roots(&mut self, view: &CatalogView) {
        let ready: BTreeSet<_> = view
            .roots
            .iter()
            .filter(|root| root.state.catalog().is_some())
            .map(|root| root.id.as_str())
            .collect();
        self.0.retain(|(id, _)| !ready.contains(&**id));
    }

    /// Whether the caller holds no catalog of a root that was not ready yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Marks the roots whose catalogs the caller holds.
    pub fn mark_unchanged(&self, statuses: &mut [pb::RootStatus]) {
        if self.0.is_empty() {
            return;
        }
        for status in statuses
            .iter_mut()
            .filter(|status| !status.catalog_digest.is_empty())
        {
            let catalog = (status.id.clone(), status.catalog_digest.clone());
            status.unchanged = self.0.contains(&catalog);
        }
    }

    /// Appends the catalogs to the bytes that identify a query. The first byte differs from a length.
    pub fn append_to(&self, query: &mut Vec<u8>) {
        if !self.0.is_empty() {
            query.push(u8::MAX);
        }
        append_texts(
            query,
            self.0.iter().flat_map(|(id, digest)| [&**id, digest]),
        );
    }
}
