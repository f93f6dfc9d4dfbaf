// Campaign parameters in a long URL. They are read and written in its text, so that nothing else of it
// changes, not even its encoding.

export const names = ["utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content"];

function decoded(text) {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return text; // it has a % that encodes nothing
  }
}

const keyOf = (parameter) => decoded(parameter.split("=", 1)[0]);
const valueOf = (parameter) => decoded(parameter.slice(parameter.indexOf("=") + 1));

// parts splits a URL into what is before its query, its parameters, and its fragment.
function parts(url) {
  const hash = url.indexOf("#") < 0 ? url.length : url.indexOf("#");
  const query = url.slice(0, hash).indexOf("?");
  return query < 0 ? [url.slice(0, hash), [], url.slice(hash)]
    : [url.slice(0, query), url.slice(query + 1, hash).split("&"), url.slice(hash)];
}

// read returns the value of a parameter, and "" if there is none.
export function read(url, name) {
  const found = parts(url)[1].find((parameter) => parameter.includes("=") && keyOf(parameter) === name);
  return found ? valueOf(found) : "";
}

// write returns a URL with this value of a parameter, and without the parameter if the value is "".
export function write(url, name, value) {
  if (value === read(url, name)) return url;
  const [before, parameters, fragment] = parts(url);
  const at = parameters.findIndex((parameter) => keyOf(parameter) === name);
  const others = parameters.filter((parameter) => keyOf(parameter) !== name);
  if (value) others.splice(at < 0 ? others.length : at, 0, `${name}=${encodeURIComponent(value)}`);
  const query = others.length === 2 && others[0] === "" && at < 0 && parameters.length === 1 ? others[1] : others.join("&"); // after a bare ?
  return before + (others.length ? `?${query}` : "") + fragment;
}
