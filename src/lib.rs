pub mod domain;
pub mod proto;
