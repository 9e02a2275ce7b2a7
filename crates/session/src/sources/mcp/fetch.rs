//! Files of an MCP server, fetched whole.

use crate::sources::{invalid_response_error, larger_file_error};
use crate::{ToolError, ToolErrorCode};
use base64::engine::general_purpose::STANDARD;
use base64::{DecodeSliceError, Engine as _};
use rmcp::RoleClient;
use rmcp::model::{ErrorCode, ReadResourceRequestParams, ReadResourceResponse, ResourceContents};
use rmcp::service::{Peer, ServiceError};

/// Bytes that are decoded at once: a multiple of three, so that no padding is inside.
const DECODED_CHUNK: usize = 3 << 10;
/// Error codes of a server that does not have a file.
pub const MISSING_FILE_CODES: [ErrorCode; 3] = [
    ErrorCode::RESOURCE_NOT_FOUND,
    ErrorCode::INVALID_PARAMS,
    ErrorCode::METHOD_NOT_FOUND,
];

/// Requests the bytes of a URI from the server.
pub async fn read_contents(
    peer: &Peer<RoleClient>,
    uri: &str,
    max_bytes: u64,
) -> Result<Vec<u8>, ToolError> {
    let response = peer
        .read_resource_once(ReadResourceRequestParams::new(uri))
        .await
        .map_err(|error| tool_error(&error))?;
    let ReadResourceResponse::Complete(result) = response else {
        return Err(invalid_response(
            "it asks for input before it returns a file",
        ));
    };
    let Ok([contents]) = <[_; 1]>::try_from(result.contents) else {
        return Err(invalid_response(
            "it returns several contents or none for a file",
        ));
    };

    let (returned, bytes) = match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => (uri, Ok(text.into_bytes())),
        ResourceContents::BlobResourceContents { uri, blob, .. } => (uri, decode_in_place(blob)),
        _ => {
            return Err(invalid_response(
                "the contents of a file are neither text nor bytes",
            ));
        }
    };

    if returned != uri {
        return Err(invalid_response("it returns another file"));
    }
    let bytes = bytes.map_err(|_| invalid_response("the base64 of a file is invalid"))?;
    let size = bytes.len() as u64;
    if size > max_bytes {
        return Err(larger_file_error(size, max_bytes));
    }
    Ok(bytes)
}

/// Decodes base64 into the memory of its text.
fn decode_in_place(text: String) -> Result<Vec<u8>, DecodeSliceError> {
    let mut bytes = text.into_bytes();
    let mut buffer = [0; DECODED_CHUNK];
    let (mut read, mut written) = (0, 0);
    while read < bytes.len() {
        let end = (read + DECODED_CHUNK / 3 * 4).min(bytes.len());
        let decoded = STANDARD.decode_slice(&bytes[read..end], &mut buffer)?;
        // The decoded bytes are fewer than those that were read.
        bytes[written..written + decoded].copy_from_slice(&buffer[..decoded]);
        (read, written) = (end, written + decoded);
    }
    bytes.truncate(written);
    Ok(bytes)
}

pub fn invalid_response(reason: &str) -> ToolError {
    invalid_response_error("the MCP server", reason)
}

/// Returns the error of a failed call for a model.
pub fn tool_error(error: &ServiceError) -> ToolError {
    let message = match error {
        ServiceError::McpError(error) if MISSING_FILE_CODES.contains(&error.code) => {
            return ToolError::from_code(
                ToolErrorCode::ResourceNotFound,
                "the MCP server does not have the file now",
            );
        }
        ServiceError::UnexpectedResponse => return invalid_response("it has another type"),
        ServiceError::McpError(error) => {
            format!("the MCP server does not return the file: {}", error.message)
        }
        error => format!("the MCP server does not respond: {error}"),
    };
    ToolError::from_code(ToolErrorCode::SourceUnavailable, &message)
}

#[cfg(test)]
mod tests {
    use super::{DECODED_CHUNK, STANDARD, decode_in_place};
    use base64::Engine as _;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decoding_in_place_is_decoding(size in 0..3 * DECODED_CHUNK, byte: u8) {
            let bytes: Vec<u8> = (0..size).map(|at| at.to_le_bytes()[0].wrapping_mul(byte)).collect();
            let decoded = decode_in_place(STANDARD.encode(&bytes)).expect("base64");
            prop_assert_eq!(decoded, bytes);
        }

        #[test]
        fn a_text_that_is_no_base64_is_an_error(text in "[A-Za-z=]{0,40}") {
            prop_assert_eq!(decode_in_place(text.clone()).is_ok(), STANDARD.decode(&text).is_ok());
        }
    }
}
