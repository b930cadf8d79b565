// kafkajs with security: SECURITY='{…}' node secured.js BOOTSTRAP NAME (see secured.go). Exits 1 at the first error.
const fs = require('fs')
const { Kafka, Partitioners, logLevel } = require('kafkajs')

const [bootstrap, name] = process.argv.slice(2)
const given = JSON.parse(process.env.SECURITY)
const read = path => fs.readFileSync(path, 'utf-8')

const ssl = given.TLS && {
  ca: [read(given.CA)],
  ...(given.Certificate && { cert: read(given.Certificate), key: read(given.Key) })
}
const sasl = given.Mechanism && {
  mechanism: given.Mechanism.toLowerCase(),
  username: given.Username,
  password: given.Password,
  oauthBearerProvider: async () => ({ value: given.Token })
}

const main = async () => {
  const kafka = new Kafka({
    clientId: name,
    brokers: [bootstrap],
    ssl,
    sasl,
    reauthenticationThreshold: 1000, // the session of the tests is shorter than the default
    logLevel: logLevel.NOTHING,
    retry: { retries: given.Password === 'wrong' ? 0 : 8 }
  })
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner })
  await producer.connect()
  for (let i = 0; i < given.Count; i++) {
    await producer.send({ topic: name, acks: -1, messages: [{ value: `${i}` }] })
    await new Promise(resolve => setTimeout(resolve, given.PauseMs))
  }
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: name })
  await consumer.connect()
  await consumer.subscribe({ topic: name, fromBeginning: true })
  const seen = new Set()
  let total = 0
  await new Promise(resolve => {
    const eachMessage = async ({ message }) => {
      seen.add(message.value.toString())
      total++
      if (seen.size === given.Count) resolve()
    }
    consumer.run({ eachMessage })
  })
  await consumer.disconnect()
  console.log('consumed', seen.size, 'in', total, 'records')
}

main().catch(error => { console.error(`${error}`); process.exit(1) })
