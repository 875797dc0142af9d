// Follows a task's log as EventSource does, in browsers and here: it connects again by itself, and says where it was. Prints
// each line once it arrives, and at the end how often it connected.
import { EventSource } from "eventsource";

const [url] = process.argv.slice(2);
let connections = 0;
const source = new EventSource(url, {
  fetch: (address, init) => {
    connections += 1;
    const headers = { ...init.headers, authorization: `Bearer ${process.env.FEDQ_TOKEN}` };
    return fetch(address, { ...init, headers });
  },
});
source.onmessage = ({ data }) => {
  const item = JSON.parse(data);
  if (item.type === "LINE") console.log(item.line);
  if (item.type === "TASK" && ["succeeded", "failed", "stopped"].includes(item.phase)) {
    source.close();
    console.error(connections);
  }
};
