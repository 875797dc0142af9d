//! A file of static tokens, for a daemon without a hub that reviews tokens: demo and single-user
//! installations. One line a token, as Kubernetes' own: `token,user,uid,"group1,group2"`.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use sha2::{Digest, Sha256};

use fedq_k8s::client::Caller;

#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    #[error("cannot read the token file `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the token file `{}` can be read by others: chmod 600 it", path.display())]
    Permissions { path: PathBuf },
    #[error("line {line} of the token file is not `token,user,uid,\"group1,group2\"`")]
    Line { line: usize },
    #[error("line {line} of the token file has a token shorter than {MIN_TOKEN} characters")]
    Short { line: usize },
    #[error("the token file has no tokens")]
    Empty,
}

/// Shorter ones can be guessed.
const MIN_TOKEN: usize = 16;

type Entries = Vec<([u8; 32], Caller)>;

/// Whose token is which. Kept as digests, so that nothing of a token stays in memory. Clones share it.
#[derive(Clone)]
pub struct TokenFile(Arc<RwLock<Entries>>);

impl TokenFile {
    pub fn read(path: &Path) -> Result<Self, TokenFileError> {
        let failed = |source| TokenFileError::Read { path: path.to_owned(), source };
        let metadata = std::fs::metadata(path).map_err(failed)?;
        if !is_private(&metadata) {
            return Err(TokenFileError::Permissions { path: path.to_owned() });
        }
        Self::parse(&std::fs::read_to_string(path).map_err(failed)?)
    }

    /// Takes over what the file says now; where it cannot be read, all stays as it was.
    pub fn reread(&self, path: &Path) -> Result<(), TokenFileError> {
        let now = Self::read(path)?;
        let entries = std::mem::take(&mut *now.0.write().unwrap_or_else(PoisonError::into_inner));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = entries;
        Ok(())
    }

    pub fn parse(text: &str) -> Result<Self, TokenFileError> {
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        let tokens: Vec<_> = lines
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
            .map(|(number, line)| entry(number, line))
            .collect::<Result<_, _>>()?;
        if tokens.is_empty() { Err(TokenFileError::Empty) } else { Ok(Self(Arc::new(RwLock::new(tokens)))) }
    }

    /// Looks at every entry and every byte, whatever matches: the time taken tells nothing.
    pub fn caller(&self, token: &str) -> Option<Caller> {
        let given = digest(token);
        let mut found = None;
        let entries = self.0.read().unwrap_or_else(PoisonError::into_inner);
        for (known, caller) in entries.iter() {
            let difference = known.iter().zip(&given).fold(0, |sum, (a, b)| sum | (a ^ b));
            if difference == 0 {
                found = Some(caller);
            }
        }
        found.cloned()
    }
}

pub(super) fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(unix)]
fn is_private(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    // The six lowest bits are the rights of the group and of everyone else.
    6 <= metadata.permissions().mode().trailing_zeros()
}

#[cfg(not(unix))]
fn is_private(_metadata: &std::fs::Metadata) -> bool {
    true
}

fn entry(line: usize, text: &str) -> Result<([u8; 32], Caller), TokenFileError> {
    let fields = fields(text).ok_or(TokenFileError::Line { line })?;
    let (token, user, uid, groups) = match fields.as_slice() {
        [token, user] => (token, user, None, ""),
        [token, user, uid] => (token, user, Some(uid), ""),
        [token, user, uid, groups] => (token, user, Some(uid), groups.as_str()),
        _ => return Err(TokenFileError::Line { line }),
    };
    if user.is_empty() {
        return Err(TokenFileError::Line { line });
    }
    if token.len() < MIN_TOKEN {
        return Err(TokenFileError::Short { line });
    }
    let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty());
    let mut groups: Vec<String> = groups.map(str::to_owned).collect();
    groups.push("system:authenticated".to_owned());
    let uid = uid.filter(|uid| !uid.is_empty()).cloned();
    let caller = Caller { user: user.clone(), uid, groups, ..Caller::default() };
    Ok((digest(token), caller))
}

/// The fields of one CSV line; `None` where quotes do not match.
fn fields(line: &str) -> Option<Vec<String>> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let field = fields.last_mut()?;
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            character => field.push(character),
        }
    }
    if quoted { None } else { Some(fields.into_iter().map(|field| field.trim().to_owned()).collect()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_belongs_to_the_user_of_its_line() {
        let file =
            TokenFile::parse("# tokens\n0123456789abcdef,ann,1,\"admins, ml\"\n\nfedcba9876543210,bob\n")
                .expect("a token file");
        let ann = file.caller("0123456789abcdef").expect("known");
        assert_eq!((ann.user.as_str(), ann.uid.as_deref()), ("ann", Some("1")));
        assert_eq!(ann.groups, ["admins", "ml", "system:authenticated"]);
        assert_eq!(file.caller("fedcba9876543210").expect("known").user, "bob");
        assert!(file.caller("0123456789abcdeF").is_none());
        assert!(file.caller("").is_none());
    }

    #[test]
    fn a_wrong_line_is_named() {
        let parse = |text: &str| TokenFile::parse(text).err().map(|error| error.to_string());
        let long = "0123456789abcdef";
        assert!(parse("").is_some_and(|error| error.contains("no tokens")));
        assert!(parse(&format!("{long},ann\nshort,bob")).is_some_and(|error| error.contains("line 2")));
        for wrong in
            [long.to_owned(), format!("{long},"), format!("{long},a,b,\"c"), format!("{long},a,b,c,d")]
        {
            assert!(matches!(TokenFile::parse(&wrong), Err(TokenFileError::Line { line: 1 })), "{wrong}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_token_that_is_taken_out_of_the_file_is_nobodys_and_a_broken_file_changes_nothing() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).expect("set");
        let write = |text: &str| std::fs::write(file.path(), text).expect("written");
        write("0123456789abcdef,ann\nfedcba9876543210,bob");
        let tokens = TokenFile::read(file.path()).expect("a token file");
        let shared = tokens.clone();
        write("fedcba9876543210,bob\nnew-0123456789abcdef,eve");
        tokens.reread(file.path()).expect("read again");
        assert!(shared.caller("0123456789abcdef").is_none(), "ann's is withdrawn");
        assert_eq!(shared.caller("new-0123456789abcdef").expect("known").user, "eve");
        for broken in ["", "short,ann"] {
            write(broken);
            assert!(tokens.reread(file.path()).is_err());
            assert_eq!(shared.caller("fedcba9876543210").expect("known").user, "bob");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "0123456789abcdef,ann").expect("written");
        let allow = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(file.path(), permissions).expect("set");
            TokenFile::read(file.path())
        };
        assert!(allow(0o600).is_ok());
        assert!(matches!(allow(0o640), Err(TokenFileError::Permissions { .. })));
        assert!(matches!(allow(0o604), Err(TokenFileError::Permissions { .. })));
    }
}
