//! Text from strangers, made safe to show.

pub(super) use crate::domain::shown::{Shown, shown};
