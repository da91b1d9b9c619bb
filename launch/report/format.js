// Formats numbers for readers.

const MINUS = "\u2212", DASH = "\u2013", DOT = "\u00b7";

function known(value) {
  return typeof value === "number" && Number.isFinite(value);
}

function exponential(value, digits) {
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
  return `${+mantissa}e${+exponent}`.replaceAll("-", MINUS);
}

// Formats with this number of significant digits, without an exponent if that is readable.
function significant(value, digits = 4) {
  if (!known(value)) return DASH;
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return exponential(value, digits);
  const decimals = size === 0 ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return value.toFixed(Math.min(decimals, 10)).replace("-", MINUS);
}

function whole(value) {
  return known(value) ? Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ",") : DASH;
}

// Formats like 12.3k, 2.54M.
function count(value, digits = 3) {
  if (!known(value)) return DASH;
  let unit = 0, rest = value;
  while (Math.abs(rest) >= 999.5 && unit < 5) rest /= 1000, ++unit;
  if (unit === 5 && Math.abs(rest) >= 999.5) return significant(value, digits);
  return (unit === 0 ? `${+rest.toPrecision(digits)}` : `${+rest.toPrecision(digits)}${"kMGTP"[unit - 1]}`).replace("-", MINUS);
}

function seconds(value) {
  if (!known(value)) return DASH;
  if (value === 0) return "0";
  if (value < 1e-3) return `${significant(1e6 * value, 3)} \u00b5s`;
  if (value < 0.9995) return `${significant(1000 * value, 3)} ms`;
  return value < 999.5 ? `${significant(value, 3)} s` : duration(value);
}

const two = (value) => String(value).padStart(2, "0");

// Formats like 42 s, 1 min 40 s, 1 h 02 min, 3 d 4 h.
function duration(value) {
  if (!known(value) || value < 0) return DASH;
  if (value < 99.5) return `${+value.toPrecision(2)} s`;
  const rounded = Math.round(value);
  if (rounded < 3600) return `${Math.floor(rounded / 60)} min ${two(rounded % 60)} s`;
  const minutes = Math.round(value / 60);
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
  const hours = Math.round(value / 3600);
  return `${whole(Math.floor(hours / 24))} d ${hours % 24} h`;
}

function bytes(value) {
  if (!known(value)) return DASH;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (value >= 999.5 && unit < 5) value /= 1024, ++unit;
  return `${+value.toPrecision(3)} ${units[unit]}`;
}

function percent(ratio) {
  if (!known(ratio)) return DASH;
  const value = 100 * ratio;
  return (Math.abs(value) < 0.095 ? `${+value.toPrecision(1)}%` : `${+value.toFixed(1)}%`).replace("-", MINUS);
}

function moment(secondsSince1970) {
  if (!known(secondsSince1970) || Math.abs(secondsSince1970) > 1e11) return DASH;
  return new Date(1000 * secondsSince1970).toISOString().slice(0, 16).replace("T", " ") + " UTC";
}

// Round numbers within [low, high], at most `most` of them: 1, 2 or 5 times a power of ten apart.
function ticks(low, high, most) {
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span)) return [low];
  const power = 10 ** Math.floor(Math.log10(span / most));
  const step = [power, 2 * power, 5 * power, 10 * power].filter((s) => span / s <= most)
    .reduce((a, b) => Math.min(a, b), Infinity);
  const values = [];
  for (let i = Math.ceil(low / step - 1e-9); i <= Math.floor(high / step + 1e-9) && values.length <= most; ++i)
    values.push(+(i * step).toPrecision(12));
  return values;
}

const MINUTE = 60, HOUR = 3600, DAY = 86400;

// Ticks of a time axis at whole seconds, minutes, hours or days.
function timeTicks(low, high, most) {
  const nice = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, DAY];
  if (high - low < 5) return ticks(low, high, most);
  const step = nice.find((s) => (high - low) / s <= most);
  if (step === undefined) return ticks(low / DAY, high / DAY, most).filter((day) => day === Math.round(day)).map((day) => day * DAY);
  const values = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) values.push(at);
  return values;
}

// The place value of the last digit of a number: 100 for 1500.
function place(value) {
  const [mantissa, exponent] = Math.abs(value).toExponential(11).replace(/\.?0+e/, "e").split("e");
  return 10 ** (exponent - Math.max(0, mantissa.length - 2));
}

// The distance between ticks; for a single tick, the place value of its last digit.
function spacing(all) {
  return all.length > 1 ? Math.abs(all[1] - all[0]) : place(all[0]);
}

// A tick of a time axis, in the largest unit in which all ticks are whole: 40 s, 2:30, 90 min, 1:02:30, 36 h, 2 d 6 h.
function timeTick(value, all) {
  if (value === 0) return "0";
  if (value < 0) return MINUS + timeTick(-value, all.map((v) => -v));
  const unit = [DAY, HOUR, MINUTE].find((u) => all.every((v) => v % u === 0)) ?? 1, most = Math.max(...all.map(Math.abs));
  const days = most < 2 * DAY || value < DAY ? "" : `${whole(Math.floor(value / DAY))} d `, rest = days ? value % DAY : value;
  if (unit === DAY) return `${whole(value / DAY)} d`;
  if (unit === HOUR) return `${days}${rest / HOUR} h`;
  const hours = Math.floor(rest / HOUR), minutes = Math.floor((rest % HOUR) / MINUTE);
  if (unit === MINUTE) return most < 2 * HOUR ? `${value / MINUTE} min` : days ? `${days}${hours}:${two(minutes)}` : `${hours} h ${two(minutes)} min`;
  const digits = Math.max(0, -Math.floor(Math.log10(spacing(all)) + 1e-9));
  if (most < 100) return `${value.toFixed(digits)} s`;
  const tail = (rest % MINUTE).toFixed(digits).padStart(digits > 0 ? digits + 3 : 2, "0");
  return most < HOUR ? `${minutes}:${tail}` : `${days}${hours}:${two(minutes)}:${tail}`;
}

// A tick of an axis, with enough digits to differ from its neighbours.
function tickText(value, all) {
  if (value === 0) return "0";
  const step = spacing(all);
  const size = Math.max(...all.map(Math.abs));
  if (size < 1e-2 || size >= 1e15) return exponential(value, Math.max(1, Math.ceil(Math.log10(size / step)) + 1));
  const digits = Math.max(1, Math.floor(Math.log10(Math.abs(value))) - Math.floor(Math.log10(step) + 1e-9) + 1);
  return size >= 1000 ? count(value, digits) : value.toFixed(Math.max(0, -Math.floor(Math.log10(step) + 1e-9))).replace("-", MINUS);
}
