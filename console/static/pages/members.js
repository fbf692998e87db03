// The members of a group, as cards: a consumer group's and a share group's.

import { empty, facts, h, listed, partitionLink } from "../dom.js";

/** consumers: the members as the server lists them. */
export function memberCards(consumers) {
  return consumers.length ? consumers.map((each) => h("article", { class: "card" }, h("h3", null, each.client_id || each.consumer_id),
    facts([["Member", h("code", null, each.consumer_id)], each.instance_id ? ["Instance", each.instance_id] : null, ["Address", each.client_host],
      ["Reads", each.assignments?.length ? listed(each.assignments, partitionLink) : "nothing"]])))
    : empty("No member is connected.");
}
