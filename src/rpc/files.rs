//! A package's files in the words of the wire, and what a page token of theirs is bound to.

use crate::disk::{Body, FileFound};
use crate::domain::{RelPath, RootId, handle};
use crate::proto::caproot::v1 as pb;
use prost::Message as _;

/// What a page token is bound to: the request but for where it begins, how much it wants, and the
/// authority, which is the root's or refused.
pub(super) fn question(request: &pb::ListResourcesRequest) -> Vec<u8> {
    let pb::ListResourcesRequest { root, package, include_digests, .. } = request;
    let question = pb::ListResourcesRequest {
        root: root.clone(),
        package: package.clone(),
        include_digests: *include_digests,
        ..pb::ListResourcesRequest::default()
    };
    question.encode_to_vec()
}

/// A file under the id of its root.
pub(super) fn resource(root: &RootId, package: &RelPath, found: &FileFound) -> pb::Resource {
    let place = package.join_all(&found.path);
    let by_content = found.digest.map(|(_, utf8)| of_content(utf8));
    pb::Resource {
        media_type: of_name(&place).or(by_content).unwrap_or_default().to_owned(),
        resource: handle::print(root, &place),
        size_bytes: found.size,
        executable: found.executable,
        digest: found.digest.map(|(digest, _)| digest.to_string()).unwrap_or_default(),
    }
}

/// Guessed from the name; where that says nothing, from whether it is text.
pub(super) fn media_type(place: &RelPath, body: Option<&Body>) -> String {
    let is_text = matches!(body, Some(Body::Text(_)));
    of_name(place).unwrap_or_else(|| of_content(is_text)).to_owned()
}

fn of_name(place: &RelPath) -> Option<&'static str> {
    let name = place.file_name().unwrap_or_default();
    mime_guess::from_path(&*String::from_utf8_lossy(name)).first_raw()
}

fn of_content(is_text: bool) -> &'static str {
    if is_text { "text/plain" } else { "application/octet-stream" }
}
