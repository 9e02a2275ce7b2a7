//! How large JSON is, and how deep, before anything works on it; and JSON that is written only as far as
//! it may go.

use super::limits::MAX_DEPTH;
use serde::Serialize;
use serde_json::Value;
use std::io;

/// Takes so many bytes, and then none.
struct BoundedWriter {
    remaining: usize,
    /// `None` where they are only counted.
    bytes: Option<Vec<u8>>,
}

impl io::Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.remaining.checked_sub(bytes.len());
        self.remaining = left.ok_or_else(|| io::Error::from(io::ErrorKind::StorageFull))?;
        if let Some(taken) = &mut self.bytes {
            taken.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why there is no JSON.
#[derive(Debug)]
pub(super) enum JsonWriteError {
    TooLarge,
    /// It is nothing that JSON can hold.
    NotJson(String),
}

/// Whether a value is at most so many bytes of JSON, and not nested too deep; or what it is.
pub(super) fn check_json_bounds(value: &Value, bytes: usize) -> Result<(), String> {
    if is_deeper(value, MAX_DEPTH) {
        return Err(format!("it is nested deeper than {MAX_DEPTH} levels"));
    }
    let mut counted = BoundedWriter { remaining: bytes, bytes: None };
    serde_json::to_writer(&mut counted, value).map_err(|_| format!("it is over {bytes} bytes"))
}

/// JSON of at most so many bytes; of larger values no more than these are ever held.
pub(super) fn write_bounded_json(
    value: &impl Serialize,
    bytes: usize,
) -> Result<String, JsonWriteError> {
    let mut taken = BoundedWriter { remaining: bytes, bytes: Some(Vec::new()) };
    match serde_json::to_writer(&mut taken, value) {
        Ok(()) => String::from_utf8(taken.bytes.unwrap_or_default())
            .map_err(|error| JsonWriteError::NotJson(error.to_string())),
        Err(error) if error.is_io() => Err(JsonWriteError::TooLarge),
        Err(error) => Err(JsonWriteError::NotJson(error.to_string())),
    }
}

fn is_deeper(value: &Value, levels: usize) -> bool {
    let Some(left) = levels.checked_sub(1) else { return true };
    match value {
        Value::Array(items) => items.iter().any(|item| is_deeper(item, left)),
        Value::Object(fields) => fields.values().any(|field| is_deeper(field, left)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{JsonWriteError, MAX_DEPTH, check_json_bounds, write_bounded_json};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[test]
    fn depth() {
        let nested = |levels| (1..levels).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(check_json_bounds(&nested(MAX_DEPTH), 1_000), Ok(()));
        assert!(
            check_json_bounds(&nested(MAX_DEPTH + 1), 1_000)
                .is_err_and(|why| why.contains("deeper"))
        );
    }

    #[test]
    fn no_json() {
        let keys = std::collections::HashMap::from([((1, 2), 3)]);
        assert!(matches!(write_bounded_json(&keys, 100), Err(JsonWriteError::NotJson(_))));
    }

    proptest! {
        #[test]
        fn exactly_what_fits(texts: Vec<String>, room in 0_usize..200) {
            let value = json!(texts);
            let json = value.to_string();
            prop_assert_eq!(check_json_bounds(&value, room).is_ok(), json.len() <= room);
            match write_bounded_json(&value, room) {
                Ok(text) => prop_assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(value)),
                Err(JsonWriteError::TooLarge) => prop_assert!(json.len() > room),
                Err(JsonWriteError::NotJson(why)) => prop_assert!(false, "{}", why),
            }
        }
    }
}
