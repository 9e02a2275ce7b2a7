//! Size and depth limits of JSON values, checked before other code works on the values.

use super::limits::MAX_DEPTH;
use serde::Serialize;
use serde::ser::Error as _;
use serde_json::Value;
use std::io;

/// Writer that fails beyond a number of bytes.
struct BoundedWriter {
    remaining: usize,
    bytes: Vec<u8>,
}

impl io::Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.remaining.checked_sub(bytes.len());
        self.remaining = left.ok_or_else(|| io::Error::from(io::ErrorKind::StorageFull))?;
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Checks that a value has at most `bytes` bytes of JSON and [`MAX_DEPTH`] levels.
pub fn check_json_bounds(value: &Value, bytes: usize) -> Result<(), String> {
    if is_deeper(value, MAX_DEPTH) {
        return Err(format!("it is nested deeper than {MAX_DEPTH} levels"));
    }
    let written = write_bounded_json(value, bytes);
    written
        .map(drop)
        .map_err(|_| format!("it is over {bytes} bytes"))
}

/// Writes at most `bytes` bytes of JSON. A larger value never takes more memory, and is an I/O error.
pub fn write_bounded_json(value: &impl Serialize, bytes: usize) -> serde_json::Result<String> {
    let mut writer = BoundedWriter {
        remaining: bytes,
        bytes: Vec::new(),
    };
    serde_json::to_writer(&mut writer, value)?;
    String::from_utf8(writer.bytes).map_err(serde_json::Error::custom)
}

fn is_deeper(value: &Value, levels: usize) -> bool {
    let Some(left) = levels.checked_sub(1) else {
        return true;
    };
    match value {
        Value::Array(items) => items.iter().any(|item| is_deeper(item, left)),
        Value::Object(fields) => fields.values().any(|field| is_deeper(field, left)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_DEPTH, check_json_bounds, write_bounded_json};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[test]
    fn the_depth_is_limited() {
        let nested = |levels| (1..levels).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(check_json_bounds(&nested(MAX_DEPTH), 1_000), Ok(()));
        assert!(
            check_json_bounds(&nested(MAX_DEPTH + 1), 1_000)
                .is_err_and(|reason| reason.contains("deeper"))
        );
    }

    #[test]
    fn a_map_with_tuple_keys_is_not_json() {
        let keys = std::collections::HashMap::from([((1, 2), 3)]);
        assert!(write_bounded_json(&keys, 100).is_err_and(|error| !error.is_io()));
    }

    proptest! {
        #[test]
        fn values_up_to_the_limit_are_written(texts: Vec<String>, room in 0_usize..200) {
            let value = json!(texts);
            let json = value.to_string();
            prop_assert_eq!(check_json_bounds(&value, room).is_ok(), json.len() <= room);
            match write_bounded_json(&value, room) {
                Ok(text) => prop_assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(value)),
                Err(error) => {
                    prop_assert!(error.is_io(), "{}", error);
                    prop_assert!(json.len() > room);
                }
            }
        }
    }
}
