// lets the last lines of a segment grow, and says how it stands
const log = document.getElementById("log");
const add = text => {
  const follows = log.scrollTop + log.clientHeight >= log.scrollHeight - 5;
  log.append(text + "\n");
  while (log.childNodes.length > 500) log.firstChild.remove();
  if (follows) log.scrollTop = log.scrollHeight;
};
const say = text => { document.getElementById("state").textContent = text; };
const source = new EventSource(log.dataset.tail);
source.onopen = () => say("live");
source.onerror = () => say("connecting again");
source.onmessage = event => add(event.data);
source.addEventListener("base64", event => add("(base64) " + event.data));
source.addEventListener("replaced", () => add("(another segment or file has this name now; it begins here)"));
source.addEventListener("end", () => { say("sealed"); source.close(); });
source.addEventListener("problem", event => { say(JSON.parse(event.data).detail); source.close(); });
log.scrollTop = log.scrollHeight;
