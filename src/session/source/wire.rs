//! What a daemon says, as a source says it: its catalog as a list, and its answer to a read as a page.
//! Pure; leaves asking to `daemon`.

use super::{Listing, SourceKind, TextPage};
use crate::client::{Catalog, root_id};
use crate::proto::caproot::v1::read_resource_response::Body;
use crate::proto::caproot::v1::{ReadResourceRequest, ReadResourceResponse, RootState, Skill};
use crate::session::result::{Code, Refusal};
use std::sync::Arc;

/// A catalog as a list of this kind's.
pub(super) fn listing(kind: SourceKind, catalog: &Catalog) -> Listing {
    let of_kind = |skill: &Arc<Skill>| {
        if kind == SourceKind::Executor {
            return skill.clone();
        }
        let mut skill = Skill::clone(skill);
        if let Some(authority) = &mut skill.authority {
            kind.name().clone_into(&mut authority.kind);
        }
        Arc::new(skill)
    };
    let unready = catalog.roots().iter().filter(|root| root.state() != RootState::Ready);
    Listing {
        skills: catalog.skills().iter().map(of_kind).collect(),
        warnings: unready
            .map(|root| format!("root {:?} is not ready: {}", root.id, root.message))
            .collect(),
        truncated: catalog.roots().iter().any(|root| root.truncated),
    }
}

/// The page, if it is what was asked for, and text.
pub(super) fn text(
    request: &ReadResourceRequest,
    page: ReadResourceResponse,
) -> Result<TextPage, Refusal> {
    let nonsense = |why: &str| {
        let message = format!("the executor's answer makes no sense: {why}");
        Err(Refusal::said(Code::BadAnswer, &message))
    };
    let is_asked = if request.resource.is_empty() {
        root_id(&page.resource) == root_id(&request.package)
    } else {
        page.resource == request.resource
    };
    if !is_asked {
        return nonsense("it is of another file");
    }
    match page.body {
        Some(Body::Contents(contents)) => {
            Ok(TextPage { resource: page.resource, contents, next_cursor: page.next_cursor })
        }
        Some(Body::Data(_)) => {
            let media = if page.media_type.is_empty() { "no text" } else { &page.media_type };
            let message = format!("the file is not text: {media}, {} bytes", page.total_bytes);
            Err(Refusal::said(Code::NotText, &message))
        }
        None => nonsense("a page of a file has no body"),
    }
}
