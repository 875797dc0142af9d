//! Every function an expression may call: CEL's own, and those that OCM's placement controller adds
//! (optionals, cel-go's strings, Kubernetes' lists, regex, URLs, quantity, semver, IP, CIDR and format, OCM's
//! `scores` and `parseJSON`).

use std::{collections::HashMap, sync::LazyLock};

use super::types::Type;

#[derive(Debug)]
pub struct Signature {
    /// Called on its first argument: `text.contains(part)`.
    pub is_method: bool,
    pub args: Vec<Type>,
    pub result: Type,
}

pub fn signatures(name: &str) -> Option<&'static [Signature]> {
    static BY_NAME: LazyLock<HashMap<&str, Vec<Signature>>> = LazyLock::new(|| {
        let mut by_name: HashMap<&str, Vec<Signature>> = HashMap::new();
        for line in ALL.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (name, forms) = line.split_once(' ').expect("a signature has a name and forms");
            let forms = forms.split('|').map(|form| read(form).expect("a signature is well-formed"));
            by_name.entry(name).or_default().extend(forms);
        }
        by_name
    });
    BY_NAME.get(name).map(Vec::as_slice)
}

/// `string.(string) bool` is a method, `(A, A) bool` a function.
fn read(form: &str) -> Option<Signature> {
    let (args, result) = form.trim().split_once(") ")?;
    let (target, args) = args.split_once('(')?;
    let target = target.strip_suffix('.');
    let args = args.split(';').map(str::trim).filter(|arg| !arg.is_empty());
    Some(Signature {
        is_method: target.is_some(),
        args: target.into_iter().chain(args).map(Type::parse).collect::<Option<_>>()?,
        result: Type::parse(result.trim())?,
    })
}

const ALL: &str = "
!_ (bool) bool
-_ (int) int | (double) double
_==_ (A; A) bool
_!=_ (A; A) bool
_<_ (bool; bool) bool | (int; int) bool | (uint; uint) bool | (double; double) bool
_<_ (string; string) bool | (bytes; bytes) bool | (timestamp; timestamp) bool | (duration; duration) bool
_<=_ (bool; bool) bool | (int; int) bool | (uint; uint) bool | (double; double) bool
_<=_ (string; string) bool | (bytes; bytes) bool | (timestamp; timestamp) bool | (duration; duration) bool
_>_ (bool; bool) bool | (int; int) bool | (uint; uint) bool | (double; double) bool
_>_ (string; string) bool | (bytes; bytes) bool | (timestamp; timestamp) bool | (duration; duration) bool
_>=_ (bool; bool) bool | (int; int) bool | (uint; uint) bool | (double; double) bool
_>=_ (string; string) bool | (bytes; bytes) bool | (timestamp; timestamp) bool | (duration; duration) bool
_+_ (int; int) int | (uint; uint) uint | (double; double) double | (string; string) string
_+_ (bytes; bytes) bytes | (list<A>; list<A>) list<A> | (duration; duration) duration
_+_ (timestamp; duration) timestamp | (duration; timestamp) timestamp
_-_ (int; int) int | (uint; uint) uint | (double; double) double | (duration; duration) duration
_-_ (timestamp; duration) timestamp | (timestamp; timestamp) duration
_*_ (int; int) int | (uint; uint) uint | (double; double) double
_/_ (int; int) int | (uint; uint) uint | (double; double) double
_%_ (int; int) int | (uint; uint) uint
@in (A; list<A>) bool | (A; map<A, B>) bool
size (string) int | (bytes) int | (list<A>) int | (map<A, B>) int
size string.() int | bytes.() int | list<A>.() int | map<A, B>.() int
type (A) type<A>
dyn (A) dyn
bool (bool) bool | (string) bool
bytes (bytes) bytes | (string) bytes
double (double) double | (int) double | (string) double | (uint) double
duration (duration) duration | (int) duration | (string) duration
int (int) int | (double) int | (duration) int | (string) int | (timestamp) int | (uint) int
string (string) string | (bool) string | (bytes) string | (double) string | (duration) string
string (int) string | (timestamp) string | (uint) string | (ip) string | (cidr) string
timestamp (timestamp) timestamp | (int) timestamp | (string) timestamp
uint (uint) uint | (double) uint | (int) uint | (string) uint
contains string.(string) bool
endsWith string.(string) bool
startsWith string.(string) bool
matches string.(string) bool | (string; string) bool
getFullYear timestamp.() int
getMonth timestamp.() int
getDayOfYear timestamp.() int
getDayOfMonth timestamp.() int
getDate timestamp.() int
getDayOfWeek timestamp.() int
getHours timestamp.() int | duration.() int
getMinutes timestamp.() int | duration.() int
getSeconds timestamp.() int | duration.() int
getMilliseconds timestamp.() int | duration.() int
optional.of (A) optional<A>
optional.ofNonZeroValue (A) optional<A>
optional.none () optional<A>
value optional<A>.() A
hasValue optional<A>.() bool
or optional<A>.(optional<A>) optional<A>
orValue optional<A>.(A) A
first list<A>.() optional<A>
last list<A>.() optional<A>
optional.unwrap (list<optional<A>>) list<A>
unwrapOpt list<optional<A>>.() list<A>
charAt string.(int) string
format string.(list<dyn>) string
indexOf string.(string) int | string.(string; int) int | list<A>.(A) int
lastIndexOf string.(string) int | string.(string; int) int | list<A>.(A) int
lowerAscii string.() string
upperAscii string.() string
replace string.(string; string) string | string.(string; string; int) string
split string.(string) list<string> | string.(string; int) list<string>
substring string.(int) string | string.(int; int) string
trim string.() string
reverse string.() string
strings.quote (string) string
join list<string>.() string | list<string>.(string) string
isSorted list<int>.() bool | list<uint>.() bool | list<double>.() bool | list<bool>.() bool
isSorted list<duration>.() bool | list<timestamp>.() bool | list<string>.() bool | list<bytes>.() bool
sum list<int>.() int | list<uint>.() uint | list<double>.() double | list<duration>.() duration
max list<int>.() int | list<uint>.() uint | list<double>.() double | list<bool>.() bool
max list<duration>.() duration | list<timestamp>.() timestamp | list<string>.() string | list<bytes>.() bytes
min list<int>.() int | list<uint>.() uint | list<double>.() double | list<bool>.() bool
min list<duration>.() duration | list<timestamp>.() timestamp | list<string>.() string | list<bytes>.() bytes
find string.(string) string
findAll string.(string) list<string> | string.(string; int) list<string>
quantity (string) quantity
isQuantity (string) bool
sign (quantity) int
isGreaterThan quantity.(quantity) bool | semver.(semver) bool
isLessThan quantity.(quantity) bool | semver.(semver) bool
compareTo quantity.(quantity) int | semver.(semver) int
asApproximateFloat quantity.() double
asInteger quantity.() int
isInteger quantity.() bool
add quantity.(quantity) quantity | quantity.(int) quantity
sub quantity.(quantity) quantity | quantity.(int) quantity
semver (string) semver
isSemver (string) bool
major semver.() int
minor semver.() int
patch semver.() int
ip (string) ip | cidr.() ip
isIP (string) bool
ip.isCanonical (string) bool
family ip.() int
isUnspecified ip.() bool
isLoopback ip.() bool
isLinkLocalMulticast ip.() bool
isLinkLocalUnicast ip.() bool
isGlobalUnicast ip.() bool
cidr (string) cidr
isCIDR (string) bool
containsIP cidr.(string) bool | cidr.(ip) bool
containsCIDR cidr.(string) bool | cidr.(cidr) bool
prefixLength cidr.() int
masked cidr.() cidr
url (string) url
isURL (string) bool
getScheme url.() string
getHost url.() string
getHostname url.() string
getPort url.() string
getEscapedPath url.() string
getQuery url.() map<string, list<string>>
format.dns1123Label () format
format.dns1123Subdomain () format
format.dns1035Label () format
format.qualifiedName () format
format.dns1123LabelPrefix () format
format.dns1123SubdomainPrefix () format
format.dns1035LabelPrefix () format
format.labelValue () format
format.uri () format
format.uuid () format
format.byte () format
format.date () format
format.datetime () format
format.named (string) optional<format>
validate format.(string) optional<list<string>>
scores dyn.(string) list<dyn>
parseJSON string.() dyn
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signature_reads() {
        let names: Vec<_> =
            ALL.lines().filter_map(|line| line.split_once(' ')).map(|(name, _)| name).collect();
        assert!(100 < names.len());
        for name in names {
            assert!(signatures(name).is_some_and(|forms| !forms.is_empty()), "{name}");
        }
        assert!(signatures("sqrt").is_none());
    }
}
