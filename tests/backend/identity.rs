//! `IdentityService`: which inbox an identifier belongs to, and what contract wallets sign.

mod lookups;
mod wallets;
