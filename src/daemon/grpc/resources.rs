//! Messages and page tokens for the files of a package.

use super::encoded_body::{self, EncodedMessage};
use super::plugin_message::digest_text;
use crate::daemon::fs::{ListedFile, PageBody};
use caproot_core::proto::caproot::v1 as pb;
use caproot_core::wire::{RelPath, RootId, handle};
use prost::Message as _;
use tonic::Status;

/// Fields of `ReadResourceResponse` for text and binary contents.
const CONTENTS_FIELD: u32 = 2;
const DATA_FIELD: u32 = 3;

/// Returns the query that a page token must match: the request without page size, page token and
/// authority. The authority is validated separately.
pub fn page_token_binding(request: &pb::ListResourcesRequest) -> Vec<u8> {
    let query = pb::ListResourcesRequest {
        page_size: 0,
        page_token: String::new(),
        authority: None,
        ..request.clone()
    };
    query.encode_to_vec()
}

/// Builds the messages of files of a package below the root with this id.
pub fn resource_messages(
    root: &RootId,
    package: &RelPath,
    files: &[ListedFile],
) -> Vec<pb::Resource> {
    files
        .iter()
        .map(|file| resource_message(root, package, file))
        .collect()
}

fn resource_message(root: &RootId, package: &RelPath, file: &ListedFile) -> pb::Resource {
    let path = package.join_path(&file.path);
    let by_content = file.utf8.map(media_type_of_content);
    pb::Resource {
        media_type: media_type_of_name(&path)
            .or(by_content)
            .unwrap_or_default()
            .to_owned(),
        resource: handle::format_handle(root, &path),
        size_bytes: file.size,
        executable: file.executable,
        digest: digest_text(file.digest),
    }
}

/// Guesses the media type from the name, otherwise from whether the contents are text.
pub fn media_type(path: &RelPath, body: Option<&PageBody>) -> String {
    let is_text = matches!(body, Some(PageBody::Text(_)));
    media_type_of_name(path)
        .unwrap_or_else(|| media_type_of_content(is_text))
        .to_owned()
}

/// Encodes a page with its contents, which `page` itself does not contain.
pub fn encode_page(
    page: &pb::ReadResourceResponse,
    body: Option<PageBody>,
) -> Result<EncodedMessage, Status> {
    match body {
        None => EncodedMessage::new(page),
        Some(PageBody::Text(text)) => encoded_body::encode_with_field(page, CONTENTS_FIELD, text),
        Some(PageBody::Bytes(bytes)) => encoded_body::encode_with_field(page, DATA_FIELD, bytes),
    }
}

fn media_type_of_name(path: &RelPath) -> Option<&'static str> {
    let name = path.file_name().unwrap_or_default();
    mime_guess::from_path(&*String::from_utf8_lossy(name)).first_raw()
}

fn media_type_of_content(is_text: bool) -> &'static str {
    if is_text {
        "text/plain"
    } else {
        "application/octet-stream"
    }
}

#[cfg(test)]
mod tests {
    use super::encode_page;
    use crate::daemon::fs::PageBody;
    use caproot_core::proto::caproot::v1 as pb;
    use pb::read_resource_response::Body as Sent;
    use prost::Message as _;

    #[test]
    fn split_page_equals_encoded_message() {
        let head = |body| pb::ReadResourceResponse {
            resource: "skill://r/a/SKILL.md".to_owned(),
            total_bytes: 1 << 40,
            revision: 7,
            body,
            ..pb::ReadResourceResponse::default()
        };
        for len in [0, 1, 127, 128, 8 << 10, 16 << 10, (16 << 10) + 1, 1 << 20] {
            let text = "x".repeat(len);
            for (body, sent) in [
                (None, None),
                (
                    Some(PageBody::Text(text.clone().into_bytes().into())),
                    Some(Sent::Contents(text.clone())),
                ),
                (
                    Some(PageBody::Bytes(vec![255; len].into())),
                    Some(Sent::Data(vec![255; len])),
                ),
            ] {
                let expected = head(sent);
                let encoded = encode_page(&head(None), body).expect("message below the size limit");
                assert_eq!(encoded.message_len(), expected.encoded_len());
                let bytes = encoded.into_chunks().collect::<Vec<_>>().concat();
                let (prefix, message) = bytes.split_at(5);
                assert_eq!(prefix[0], 0, "no compression");
                assert_eq!(
                    prefix[1..],
                    u32::try_from(message.len())
                        .expect("length fits")
                        .to_be_bytes()
                );
                assert_eq!(
                    pb::ReadResourceResponse::decode(message).expect("valid message"),
                    expected
                );
            }
        }
    }
}
