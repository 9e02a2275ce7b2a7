//! Incremental parser of HTTP/2 frames that passes header blocks to [`HeaderBlock`]. After
//! unexpected bytes, the parser leaves the rest of the connection unchanged. Layouts: RFC 9113,
//! sections 3.4, 4 and 6.

use super::header_block::HeaderBlock;

/// Connection preface: the first bytes of a client (RFC 9113, 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Size of a frame header.
pub const FRAME_HEADER_LEN: usize = 9;
/// Largest frame unless the server announces another size.
const MAX_FRAME_LEN: usize = 16_384;
const HEADERS: u8 = 1;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Rewriter of the bytes of a client, which overwrites invalid characters of each `:authority` in
/// place.
#[derive(Debug, Default)]
pub struct AuthorityRewriter {
    state: FrameState,
    header_block: HeaderBlock,
    /// Stream whose header block continues in the next frame.
    continued_stream: Option<[u8; 4]>,
}

/// Position of the next byte.
#[derive(Debug)]
enum FrameState {
    /// In the preface, after this many bytes.
    Preface(usize),
    /// In a frame header, after this many bytes.
    Header([u8; FRAME_HEADER_LEN], usize),
    /// At the padding length of a frame; `rest` bytes follow.
    Padding {
        priority: usize,
        rest: usize,
        ends_block: bool,
    },
    /// In the payload of a frame.
    Payload(FramePayload),
    /// After unexpected bytes.
    Unparsable,
}

/// Remaining bytes of each part of a payload.
#[derive(Debug, Default)]
struct FramePayload {
    /// Bytes before the header block.
    prefix: usize,
    block: usize,
    padding: usize,
    /// Whether the header block ends with this frame.
    ends_block: bool,
}

impl Default for FrameState {
    fn default() -> Self {
        Self::Preface(0)
    }
}

impl AuthorityRewriter {
    /// Parses and rewrites the next bytes of the connection.
    pub fn rewrite(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let Some(done) = self.advance(bytes) else {
                self.state = FrameState::Unparsable;
                return;
            };
            bytes = &mut bytes[done..];
        }
    }

    /// Parses at least one byte and returns how many. Returns `None` for invalid or unsupported bytes.
    fn advance(&mut self, bytes: &mut [u8]) -> Option<usize> {
        match &mut self.state {
            FrameState::Preface(done) => {
                let now = bytes.len().min(PREFACE.len() - *done);
                if bytes[..now] != PREFACE[*done..][..now] {
                    return None;
                }

                *done += now;
                if *done == PREFACE.len() {
                    self.state = FrameState::new_header();
                }
                Some(now)
            }
            FrameState::Header(header, done) => {
                let now = bytes.len().min(FRAME_HEADER_LEN - *done);
                header[*done..][..now].copy_from_slice(&bytes[..now]);
                *done += now;
                if *done == FRAME_HEADER_LEN {
                    let header = *header;
                    self.begin_frame(header)?;
                }
                Some(now)
            }
            &mut FrameState::Padding {
                priority,
                rest,
                ends_block,
            } => {
                let padding = usize::from(bytes[0]);

                let block = rest.checked_sub(priority + padding)?;
                self.enter_payload(FramePayload {
                    prefix: priority,
                    block,
                    padding,
                    ends_block,
                })?;
                Some(1)
            }
            FrameState::Payload(_) => self.advance_payload(bytes),
            FrameState::Unparsable => Some(bytes.len()),
        }
    }

    /// Passes bytes of a payload, and rewrites those of the header block.
    fn advance_payload(&mut self, bytes: &mut [u8]) -> Option<usize> {
        let FrameState::Payload(payload) = &mut self.state else {
            return None;
        };
        let is_block = payload.prefix == 0 && payload.block > 0;
        let part = [
            &mut payload.prefix,
            &mut payload.block,
            &mut payload.padding,
        ]
        .into_iter()
        .find(|remaining| **remaining > 0)?;

        let now = bytes.len().min(*part);
        *part -= now;
        if is_block {
            self.header_block.rewrite(&mut bytes[..now])?;
        }
        self.leave_finished_frame()?;
        Some(now)
    }

    fn begin_frame(&mut self, header: [u8; FRAME_HEADER_LEN]) -> Option<()> {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = header;
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        let stream = [s0, s1, s2, s3];
        let ends_block = flags & END_HEADERS != 0;

        // No other frame may stand between the frames of a header block (RFC 9113, 4.3), and a
        // client cannot push (8.4).
        let expected = match self.continued_stream {
            Some(continued) => kind == CONTINUATION && stream == continued,
            None => kind != CONTINUATION && kind != PUSH_PROMISE,
        };
        if length > MAX_FRAME_LEN || !expected {
            return None;
        }

        if kind != HEADERS && kind != CONTINUATION {
            return self.enter_payload(FramePayload {
                prefix: length,
                ..FramePayload::default()
            });
        }

        self.continued_stream = (!ends_block).then_some(stream);

        // CONTINUATION has neither padding nor a priority (RFC 9113, 6.10).
        let flags = if kind == HEADERS { flags } else { 0 };
        // The priority takes five bytes: a stream of four and a weight of one (RFC 9113, 6.2).
        let priority = if flags & PRIORITY != 0 { 5 } else { 0 };

        if flags & PADDED != 0 {
            let rest = length.checked_sub(1)?;
            self.state = FrameState::Padding {
                priority,
                rest,
                ends_block,
            };
            return Some(());
        }

        let block = length.checked_sub(priority)?;
        self.enter_payload(FramePayload {
            prefix: priority,
            block,
            padding: 0,
            ends_block,
        })
    }

    fn enter_payload(&mut self, payload: FramePayload) -> Option<()> {
        self.state = FrameState::Payload(payload);
        self.leave_finished_frame()
    }

    /// Starts the next frame if the payload is complete.
    fn leave_finished_frame(&mut self) -> Option<()> {
        let FrameState::Payload(FramePayload {
            prefix: 0,
            block: 0,
            padding: 0,
            ends_block,
        }) = self.state
        else {
            return Some(());
        };
        if ends_block && !self.header_block.is_complete() {
            return None;
        }
        self.state = FrameState::new_header();
        Some(())
    }
}

impl FrameState {
    fn new_header() -> Self {
        Self::Header([0; FRAME_HEADER_LEN], 0)
    }
}

#[cfg(test)]
mod tests;
