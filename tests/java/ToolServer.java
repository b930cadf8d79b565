import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs command-line tools one after the other in one JVM, because starting a JVM for each costs a second.
 *
 * Request on stdin: int count, count strings (int length, UTF-8): main class and arguments; int length and bytes of the
 * tool's stdin. Answer on stdout: int exit code; int length and bytes of its stdout; the same of its stderr; int 1 if
 * this JVM ends now.
 *
 * It ends after a tool that left a client open, as tools do that fail: the client would try to reach its server for
 * ever, for a tenth of a processor.
 */
public class ToolServer {
    private static final class Exited extends RuntimeException {
        final int code;

        Exited(int code) {
            super("exit " + code, null, false, false);
            this.code = code;
        }
    }

    private record Ending(int code, byte[] out, byte[] err) { }

    private static final Queue<Runnable> hooks = new ConcurrentLinkedQueue<>();
    private static volatile ByteArrayOutputStream out;
    private static volatile ByteArrayOutputStream err;
    private static volatile Ending ending;

    public static void main(String[] unused) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        PrintStream realOut = System.out;
        DataOutputStream answers = new DataOutputStream(realOut);
        Exit.Procedure exits = (code, message) -> {
            if (ending == null) {
                runHooks();
            }
            if (ending == null) { // tools that catch everything would report our exception as a second failure
                System.out.flush();
                System.err.flush();
                ending = new Ending(code, out.toByteArray(), err.toByteArray());
            }
            throw new Exited(code);
        };
        Exit.setExitProcedure(exits);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        Exit.setHaltProcedure(exits);
        while (true) {
            int count = requests.readInt();
            String[] words = new String[count];
            for (int i = 0; i < count; i++) {
                words[i] = new String(bytes(requests), StandardCharsets.UTF_8);
            }
            InputStream input = new ByteArrayInputStream(bytes(requests));
            out = new ByteArrayOutputStream();
            err = new ByteArrayOutputStream();
            ending = null;
            System.setIn(input);
            System.setOut(new PrintStream(out, true));
            System.setErr(new PrintStream(err, true));
            int code = run(words);
            System.out.flush();
            System.err.flush();
            Ending end = ending != null ? ending : new Ending(code, out.toByteArray(), err.toByteArray());
            answers.writeInt(end.code);
            write(answers, end.out);
            write(answers, end.err);
            boolean ends = hasOpenClient();
            answers.writeInt(ends ? 1 : 0);
            answers.flush();
            if (ends) {
                Runtime.getRuntime().halt(0);
            }
        }
    }

    private static int run(String[] words) {
        String[] args = java.util.Arrays.copyOfRange(words, 1, words.length);
        try {
            Method main = Class.forName(words[0]).getMethod("main", String[].class);
            main.invoke(null, (Object) args);
            runHooks();
            return 0;
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof Exited exited) {
                return exited.code;
            }
            e.getCause().printStackTrace();
            return 1;
        } catch (ReflectiveOperationException e) {
            e.printStackTrace();
            return 2;
        }
    }

    /** What the tool wanted done when the JVM ends, such as closing its producer. */
    private static void runHooks() {
        for (Runnable hook; (hook = hooks.poll()) != null; ) {
            hook.run();
        }
    }

    private static boolean hasOpenClient() {
        return Thread.getAllStackTraces().keySet().stream().anyMatch(thread -> thread.getName().startsWith("kafka-"));
    }

    private static byte[] bytes(DataInputStream in) throws Exception {
        byte[] read = new byte[in.readInt()];
        in.readFully(read);
        return read;
    }

    private static void write(DataOutputStream out, byte[] data) throws Exception {
        out.writeInt(data.length);
        out.write(data);
    }
}
