// Quantities and times as people read them.

const SUFFIXES = {
  "": 1, n: 1e-9, u: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};
const FORM = /^([+-]?)(\d{1,19})(?:\.(\d{1,9}))?(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,2}))?$/;

/** About how much it is: enough for a bar. */
export function number(text) {
  const parts = FORM.exec(text ?? "");
  if (!parts) return 0;
  const [, sign, whole, fraction = "0", suffix = "", power] = parts;
  const scale = power === undefined ? SUFFIXES[suffix] : 10 ** Number(power);
  return (sign === "-" ? -1 : 1) * Number(`${whole}.${fraction}`) * scale;
}

const UNIT = 30n;

/** Exactly how much it is, in parts of 10³⁰; `null` of what is no quantity. */
export function exact(text) {
  const parts = FORM.exec(text ?? "");
  if (!parts) return null;
  const [, sign, whole, fraction = "", suffix = "", power] = parts;
  const digits = BigInt(whole + fraction) * (sign === "-" ? -1n : 1n);
  let ten = UNIT - BigInt(fraction.length);
  let scale = 1n;
  if (power !== undefined) ten += BigInt(power);
  else if (suffix.endsWith("i")) scale = 1n << BigInt(10 * (1 + "KMGTPE".indexOf(suffix[0])));
  else ten += { n: -9n, u: -6n, m: -3n, k: 3n, M: 6n, G: 9n, T: 12n, P: 15n, E: 18n }[suffix] ?? 0n;
  const value = digits * scale;
  return ten < 0n ? value / 10n ** -ten : value * 10n ** ten;
}

export function isQuantity(text) {
  return FORM.test(text);
}

/** Whether two texts are the same amount; where one is absent, only if both are. */
export function same(one, other) {
  if (one === undefined || other === undefined) return one === other;
  if (one === other) return true;
  const value = exact(one);
  return value !== null && value === exact(other);
}

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** A sum, in the unit that its resource is usually told in. */
export function amount(value, resource) {
  if (/memory|storage|hugepages/.test(resource)) {
    const units = ["Ki", "Mi", "Gi", "Ti", "Pi"];
    let scaled = value / 1024;
    let at = 0;
    while (10_000 <= scaled && at < units.length - 1) {
      scaled /= 1024;
      at += 1;
    }
    return value === 0 ? "0" : `${grouped.format(scaled)}${units[at]}`;
  }
  return grouped.format(value);
}

export function count(value, one, many = `${one}s`) {
  return `${grouped.format(value)} ${value === 1 ? one : many}`;
}

const STEPS = [[60, "s", 1], [3600, "min", 60], [86_400, "h", 3600], [Infinity, "d", 86_400]];

export function relative(at, now) {
  const seconds = Math.round((now - at) / 1000);
  const distance = Math.abs(seconds);
  if (distance < 3) return "now";
  const [, unit, size] = STEPS.find(([limit]) => distance < limit);
  const text = `${Math.floor(distance / size)} ${unit}`;
  return 0 < seconds ? `${text} ago` : `in ${text}`;
}

const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

export function moment(at) {
  return clock.format(at);
}

/** How scarce a resource usually is: what people look at first comes first. */
export function scarcity(resource) {
  if (resource === "memory") return 2;
  if (resource === "cpu") return 1;
  return /storage|pods|hugepages/.test(resource) ? 3 : 0;
}

export function byScarcity(one, other) {
  return scarcity(one) - scarcity(other) || (one < other ? -1 : 1);
}
