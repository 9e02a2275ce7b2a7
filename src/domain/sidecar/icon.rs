//! Where an icon lies that a sidecar names. Compares words only: whether a link leads elsewhere is
//! for the room that opens files.

use crate::domain::RelPath;

/// The place, below the selected root, of an icon that `package` names relative to itself:
/// `./assets/x.svg`, `assets/x.svg`, or with `../` before it. `None` unless that is below the
/// `assets` directory of the package, or of its plugin's directory.
#[must_use]
pub fn resolve_icon(package: &RelPath, plugin: Option<&RelPath>, text: &str) -> Option<RelPath> {
    let mut rest = text;
    let mut from = package.clone();
    loop {
        if let Some(below) = rest.strip_prefix("./") {
            rest = below;
        } else if let Some(above) = rest.strip_prefix("../") {
            from = from.parent()?;
            rest = above;
        } else {
            break;
        }
    }
    // The type refuses dot segments further on, and absolute, empty and NUL ones.
    let place = from.join_path(&RelPath::new(rest.as_bytes())?);
    let is_allowed = [Some(package), plugin].into_iter().flatten().any(|owner| {
        let assets = owner.join(b"assets").and_then(|assets| place.strip_prefix(&assets));
        assets.is_some_and(|below| !below.is_root())
    });
    is_allowed.then_some(place)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{RelPath, resolve_icon};

    fn rel(text: &str) -> RelPath {
        RelPath::new(text.as_bytes()).expect(text)
    }

    #[test]
    fn only_below_assets() {
        for (package, plugin, text, expected) in [
            ("s", None, "./assets/x.svg", Some("s/assets/x.svg")),
            ("s", None, "assets/a/x.svg", Some("s/assets/a/x.svg")),
            ("", None, "assets/x.svg", Some("assets/x.svg")),
            ("s", None, "../s/assets/x.svg", Some("s/assets/x.svg")),
            ("p/skills/s", Some("p"), "../../assets/logo.svg", Some("p/assets/logo.svg")),
            ("skills/s", Some(""), "./../.././assets/logo.svg", Some("assets/logo.svg")),
            ("p/skills/s", None, "../../assets/logo.svg", None),
            ("p/skills/s", Some("p"), "../../other/logo.svg", None),
            ("p/skills/s", Some("p"), "../assets/logo.svg", None),
            ("p/skills/s", Some("p"), "../../../assets/logo.svg", None),
            ("s", Some(""), "../../assets/logo.svg", None),
            ("s", None, "assets/../x.svg", None),
            ("s", None, "assets/..", None),
            ("s", None, "assets", None),
            ("s", None, "assets/", None),
            ("s", None, "assets//x", None),
            ("s", None, "assetsx/x", None),
            ("s", None, "x.svg", None),
            ("s", None, "/s/assets/x.svg", None),
            ("s", None, "https://example.com/assets/x.svg", None),
            ("s", None, "assets/a\0b", None),
            ("s", None, "", None),
            ("s", None, "..", None),
        ] {
            let plugin = plugin.map(rel);
            let found = resolve_icon(&rel(package), plugin.as_ref(), text);
            assert_eq!(found, expected.map(rel), "{package} {text:?}");
        }
    }

    proptest! {
        #[test]
        fn never_escapes(text in "(\\.\\./|\\./|assets|/|a|\\.\\.|\\.|\0|é|p|s){0,8}", any: String) {
            for text in [text, any] {
                if let Some(place) = resolve_icon(&rel("p/s"), Some(&rel("p")), &text) {
                    let below = |dir: &str| place.strip_prefix(&rel(dir)).is_some_and(|rest| !rest.is_root());
                    prop_assert!(below("p/assets") || below("p/s/assets"), "{place:?}");
                }
            }
        }
    }
}
